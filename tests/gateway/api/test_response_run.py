import threading
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from stoker_engine.errors import EngineError, EngineGenerateError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.outputs import CompletionOutput, RequestOutput
from stoker_engine.sampling_params import SamplingParams
from stoker_gateway.api.chat_plan import ChatPlan
from stoker_gateway.api.responses.run import ResponseRun
from stoker_gateway.api.responses.store import ResponseStore, StoredResponse
from stoker_gateway.openai.responses.protocol import Response
from stoker_gateway.reasoning.think import ContentParser
from stoker_gateway.tools.parts import Parser, Part

STOP = FinishReason.STOP


def output(text: str, finish_reason: FinishReason | None = None) -> RequestOutput:
    return RequestOutput("r", None, [0], [CompletionOutput(0, text, [], finish_reason=finish_reason)], finished=finish_reason is not None)


async def outputs_of(*items: RequestOutput | Exception) -> AsyncGenerator[RequestOutput]:
    for item in items:
        if isinstance(item, Exception):
            raise item
        yield item


def run_of(response: Response, make_parser: Callable[[], Parser] | None = None) -> ResponseRun:
    return ResponseRun(StoredResponse(response, []), ResponseStore(), ChatPlan(SamplingParams(), make_parser, lambda: "c", allows_many=True))


@pytest.mark.parametrize(("finish_reason", "last", "status"), [(None, "event: response.failed", "failed"), (STOP, "event: response.completed", "completed")])
async def test_an_error_ends_what_is_not_over_and_only_that(
    make_response: Callable[[], Response], finish_reason: FinishReason | None, last: str, status: Any
) -> None:
    response = make_response()
    stream = run_of(response).stream(outputs_of(output("Hi", finish_reason), EngineGenerateError("It died.")))
    events = b"".join([data async for data in stream]).decode().split("\n\n")[:-1]
    assert events[-1].startswith(last) and response.status == status
    assert not any(event.startswith("event: error") for event in events)


async def test_an_error_before_the_first_event_is_raised(make_response: Callable[[], Response]) -> None:
    run = run_of(make_response())
    with pytest.raises(EngineError, match="died"):
        await anext(run.stream(outputs_of(EngineGenerateError("It died."))))
    with pytest.raises(EngineError, match="died"):
        await run.whole(outputs_of(EngineGenerateError("It died.")))


@pytest.mark.parametrize("length", [5, 5000])
async def test_a_long_answer_is_read_where_nothing_waits_for_it(make_response: Callable[[], Response], length: int) -> None:
    threads: list[threading.Thread] = []

    class Parsed(ContentParser):
        def feed(self, text: str) -> list[Part]:
            threads.append(threading.current_thread())
            return super().feed(text)

    answer = await run_of(make_response(), Parsed).whole(outputs_of(output("x" * length, STOP)))
    assert answer.status == "completed" and [thread is threading.main_thread() for thread in threads] == [length == 5]
