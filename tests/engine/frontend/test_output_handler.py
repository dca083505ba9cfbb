import asyncio
import itertools
from collections.abc import Callable

import pytest

from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend import output_handler
from stoker_engine.frontend.output_collector import RequestOutputCollector
from stoker_engine.frontend.output_handler import OutputHandler
from stoker_engine.frontend.output_processor import OutputProcessor
from stoker_engine.frontend.stat_loggers import StatLoggerManager
from stoker_engine.protocol import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest
from stoker_engine.sampling_params import RequestOutputKind
from stoker_engine.stats import IterationStats, SchedulerStats
from stoker_engine.tokenizer import Tokenizer

NUM_REQUESTS = 400


class Backlog:
    """A client whose messages are all there already."""

    def __init__(self, messages: list[EngineCoreOutputs]) -> None:
        self._messages = messages

    async def add_request(self, request: EngineCoreRequest) -> None:
        raise AssertionError

    async def abort_requests(self, request_ids: list[str]) -> None:
        assert request_ids == []

    async def get_output(self) -> EngineCoreOutputs:
        if not self._messages:
            await asyncio.Event().wait()
        return self._messages.pop(0)

    async def call_utility(self, method: str, *args: object) -> None:
        raise AssertionError

    async def shutdown(self) -> None:
        raise AssertionError


@pytest.mark.fault("B8")
@pytest.mark.parametrize(("num_messages", "per_message"), [(1, NUM_REQUESTS), (NUM_REQUESTS, 1)], ids=["one long message", "many short ones"])
async def test_a_backlog_leaves_turns_to_the_rest_of_the_event_loop(
    byte_tokenizer: Tokenizer,
    make_request: Callable[..., EngineCoreRequest],
    monkeypatch: pytest.MonkeyPatch,
    num_messages: int,
    per_message: int,
) -> None:
    monkeypatch.setattr(output_handler, "MAX_TURN_SECONDS", 0.0)
    processor = OutputProcessor(byte_tokenizer)
    collector = RequestOutputCollector(RequestOutputKind.DELTA)
    ids = [f"r-{number}" for number in range(NUM_REQUESTS)]
    for request_id in ids:
        processor.add_request(make_request(request_id), None, None, 0, collector)
    outputs = [EngineCoreOutput(request_id, [97], FinishReason.LENGTH) for request_id in ids]
    messages = [EngineCoreOutputs(outputs=outputs[start : start + per_message]) for start in range(0, NUM_REQUESTS, per_message)]
    assert len(messages) == num_messages
    handler = asyncio.create_task(OutputHandler(Backlog(messages), processor, StatLoggerManager([])).run())
    seen = []
    while processor.num_requests:
        seen.append(processor.num_requests)
        await asyncio.sleep(0)
    handler.cancel()
    assert max(earlier - later for earlier, later in itertools.pairwise(seen)) <= 8
    assert len(seen) >= NUM_REQUESTS // 8


async def test_who_has_an_answer_finds_it_counted(
    byte_tokenizer: Tokenizer, make_request: Callable[..., EngineCoreRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_handler, "MAX_TURN_SECONDS", 0.0)
    num_counted: list[int] = []

    class Recorder:
        def record(self, _scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats) -> None:
            num_counted.append(len(iteration_stats.finished_requests))

    processor = OutputProcessor(byte_tokenizer)
    collector = RequestOutputCollector(RequestOutputKind.DELTA)
    processor.add_request(make_request("r"), None, None, 0, collector)
    backlog = Backlog([EngineCoreOutputs(outputs=[EngineCoreOutput("r", [97], FinishReason.LENGTH)])])
    handler = asyncio.create_task(OutputHandler(backlog, processor, StatLoggerManager([Recorder()])).run())
    assert (await collector.get()).finished
    assert num_counted == [1]
    handler.cancel()
