from collections.abc import Callable

import pytest

from stoker_engine.errors import EngineBusyError, EngineDeadError, EngineGenerateError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.output_collector import RequestOutputCollector
from stoker_engine.frontend.output_processor import OutputProcessor, ProcessedOutputs
from stoker_engine.protocol import EngineCoreEvent, EngineCoreEventType, EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, PrefillStats
from stoker_engine.sampling_params import RequestOutputKind
from stoker_engine.tokenizer import Tokenizer

MakeRequest = Callable[..., EngineCoreRequest]
DELTA, FINAL_ONLY = RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY


@pytest.fixture
def processor(byte_tokenizer: Tokenizer) -> OutputProcessor:
    return OutputProcessor(byte_tokenizer)


@pytest.fixture
def add(processor: OutputProcessor, make_request: MakeRequest) -> Callable[..., RequestOutputCollector]:
    """Adds a request with its own collector."""

    def add(request_id: str = "r-1", **params: object) -> RequestOutputCollector:
        request = make_request(request_id, **params)
        collector = RequestOutputCollector(request.sampling_params.output_kind)
        processor.add_request(request, "a", None, 0, collector)
        return collector

    return add


def step(processor: OutputProcessor, *outputs: EngineCoreOutput, timestamp: float = 0.0) -> ProcessedOutputs:
    return processor.process_outputs(EngineCoreOutputs(outputs=list(outputs), timestamp=timestamp))


def said(text: str, request_id: str = "r-1", finish_reason: FinishReason | None = None) -> EngineCoreOutput:
    return EngineCoreOutput(request_id, list(text.encode()), finish_reason=finish_reason)


def test_an_output_names_the_external_id_and_the_prompt(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    collector = add("chat-abc-12345678", output_kind=DELTA)
    step(processor, said("hi", "chat-abc-12345678"))
    output = collector.get_nowait()
    assert output is not None
    assert (output.request_id, output.prompt, output.prompt_token_ids) == ("chat-abc", "a", [97])
    assert (output.outputs[0].text, output.outputs[0].token_ids, output.finished) == ("hi", [104, 105], False)


def test_requests_without_a_collector_are_returned(processor: OutputProcessor, make_request: MakeRequest) -> None:
    processor.add_request(make_request(output_kind=FINAL_ONLY), None, None, 0, None)
    assert step(processor, said("hi")).request_outputs == []
    (output,) = step(processor, said("!", finish_reason=FinishReason.LENGTH)).request_outputs
    assert (output.outputs[0].text, output.outputs[0].finish_reason, output.finished) == ("hi!", FinishReason.LENGTH, True)


def test_a_finished_request_is_forgotten_and_not_aborted(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    add()
    assert processor.num_requests == 1
    assert step(processor, said("hi", finish_reason=FinishReason.LENGTH)).request_ids_to_abort == []
    assert processor.num_requests == 0
    assert processor.abort_requests(["r", "r-1"]) == []


def test_a_stop_string_ends_a_request_that_the_core_still_runs(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    collector = add(stop=["STOP"], output_kind=DELTA)
    assert step(processor, said("hi ST")).request_ids_to_abort == []
    assert step(processor, said("OP")).request_ids_to_abort == ["r-1"]
    output = collector.get_nowait()
    assert output is not None
    assert (output.outputs[0].text, output.outputs[0].token_ids) == ("hi ", list(b"hi "))
    assert (output.outputs[0].finish_reason, output.outputs[0].stop_reason, output.num_output_tokens) == (FinishReason.STOP, "STOP", 7)
    assert step(processor, said("more")).request_ids_to_abort == []


def test_a_stop_string_in_the_last_tokens_wins_over_the_length(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    collector = add(stop=["!"])
    assert step(processor, said("hi!", finish_reason=FinishReason.LENGTH)).request_ids_to_abort == []
    output = collector.get_nowait()
    assert output is not None
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("hi", FinishReason.STOP)


def test_the_text_of_a_stop_token_is_not_shown_and_its_id_is(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    collector = add(stop_token_ids=[120], stop=["ix"])
    output = EngineCoreOutput("r-1", [*b"hix"], finish_reason=FinishReason.STOP, stop_reason=120)
    step(processor, output)
    result = collector.get_nowait()
    assert result is not None
    assert (result.outputs[0].text, result.outputs[0].token_ids, result.outputs[0].stop_reason) == ("hi", [*b"hix"], 120)


def test_a_stop_token_is_shown_when_stop_text_is_included(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    collector = add(stop_token_ids=[120], include_stop_str_in_output=True)
    step(processor, EngineCoreOutput("r-1", [*b"hix"], finish_reason=FinishReason.STOP, stop_reason=120))
    result = collector.get_nowait()
    assert result is not None
    assert result.outputs[0].text == "hix"


def test_deltas_with_nothing_to_show_are_left_out(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    collector = add(stop=["STOP"], output_kind=DELTA)
    step(processor, said("S"))
    step(processor, EngineCoreOutput("r-1", [], prefill_stats=PrefillStats(1, 0)))
    assert collector.get_nowait() is None
    step(processor, said("x"))
    output = collector.get_nowait()
    assert output is not None
    assert (output.outputs[0].text, output.outputs[0].token_ids) == ("Sx", [*b"Sx"])


def test_without_detokenize_ids_come_at_once(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    collector = add(detokenize=False, output_kind=DELTA)
    step(processor, EngineCoreOutput("r-1", [0xF0]))
    output = collector.get_nowait()
    assert output is not None
    assert (output.outputs[0].text, output.outputs[0].token_ids) == ("", [0xF0])


@pytest.mark.fault("G16")
@pytest.mark.parametrize("request_id", ["r", "r-1"])
def test_an_abort_by_either_id_gives_what_there_is(processor: OutputProcessor, add: Callable[..., RequestOutputCollector], request_id: str) -> None:
    collector = add(stop=["STOP"], output_kind=DELTA)
    step(processor, said("hi S"))
    assert processor.abort_requests([request_id, request_id, "unknown"]) == ["r-1"]
    output = collector.get_nowait()
    assert output is not None
    assert (output.outputs[0].text, output.outputs[0].finish_reason, output.finished) == ("hi S", FinishReason.ABORT, True)
    assert processor.num_requests == 0


@pytest.mark.fault("G7")
def test_an_abort_without_new_tokens_gives_empty_lists(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    collector = add(output_kind=DELTA)
    step(processor, said("hi"))
    assert collector.get_nowait() is not None
    processor.abort_requests(["r-1"])
    output = collector.get_nowait()
    assert output is not None
    assert (output.outputs[0].text, output.outputs[0].token_ids, output.outputs[0].logprobs) == ("", [], None)


def test_an_abort_ends_all_requests_of_an_external_id_and_no_other(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    for request_id in ("same-1", "same-2", "other-1"):
        add(request_id)
    assert processor.abort_requests(["same"]) == ["same-1", "same-2"]
    assert processor.num_requests == 1


@pytest.mark.fault("G16")
def test_an_aborted_request_without_a_collector_is_returned_by_the_next_step(processor: OutputProcessor, make_request: MakeRequest) -> None:
    processor.add_request(make_request(), None, None, 0, None)
    processor.abort_requests(["r-1"])
    (output,) = step(processor).request_outputs
    assert output.outputs[0].finish_reason is FinishReason.ABORT


def test_an_id_in_flight_cannot_be_added_again(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    add()
    with pytest.raises(ValueError, match="in flight"):
        add()


async def test_a_failure_of_one_request_reaches_its_consumer_alone(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    failing, other = add("r-1", output_kind=DELTA), add("s-1", output_kind=DELTA)
    step(processor, said("hi"))
    processed = step(processor, EngineCoreOutput("r-1", [], FinishReason.ERROR, failure_message="out of luck"), said("yo", "s-1"))
    assert (await failing.get()).outputs[0].text == "hi"
    with pytest.raises(EngineGenerateError, match="out of luck"):
        await failing.get()
    assert (await other.get()).outputs[0].text == "yo"
    assert processed.request_ids_to_abort == []
    assert processor.num_requests == 1


async def test_a_failure_by_what_others_take_of_the_engine_is_told_apart(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    failing = add("r-1", output_kind=DELTA)
    step(processor, EngineCoreOutput("r-1", [], FinishReason.ERROR, failure_message="too busy", may_be_retried=True))
    with pytest.raises(EngineBusyError, match="too busy"):
        await failing.get()


async def test_the_death_of_the_engine_reaches_every_consumer_and_leaves_nothing(
    processor: OutputProcessor, add: Callable[..., RequestOutputCollector]
) -> None:
    collectors = [add(f"r-{i}") for i in range(3)]
    assert processor.fail_requests(["r-0", "unknown"], EngineDeadError("gone")) == []
    processor.fail_all_requests(EngineDeadError("gone"))
    for collector in collectors:
        with pytest.raises(EngineDeadError, match="gone"):
            await collector.get()
    assert processor.num_requests == 0
    assert not processor._internal_ids


def test_times_are_intervals_between_the_moments_of_a_request(
    processor: OutputProcessor, add: Callable[..., RequestOutputCollector], monkeypatch: pytest.MonkeyPatch
) -> None:
    add(max_tokens=7)
    monkeypatch.setattr("time.time", lambda: 1003.5)
    queued = EngineCoreEvent(EngineCoreEventType.QUEUED, 50.0)
    scheduled = [EngineCoreEvent(EngineCoreEventType.SCHEDULED, moment) for moment in (51.0, 52.5)]
    preempted = EngineCoreEvent(EngineCoreEventType.PREEMPTED, 52.0)
    first = EngineCoreOutput("r-1", [97], events=[queued, scheduled[0], preempted, scheduled[1]], prefill_stats=PrefillStats(10, 4))
    stats = step(processor, first, timestamp=53.0).iteration_stats
    assert stats.time_to_first_tokens == [3.5]
    assert (stats.num_prompt_tokens, stats.num_cached_tokens, stats.num_generation_tokens, stats.num_preempted) == (10, 4, 1, 1)
    assert step(processor, said("bc"), timestamp=55.0).iteration_stats.inter_token_latencies == [2.0]
    monkeypatch.setattr("time.time", lambda: 1009.0)
    (finished,) = step(processor, said("d", finish_reason=FinishReason.LENGTH), timestamp=58.0).iteration_stats.finished_requests
    assert (finished.queue_time, finished.prefill_time, finished.decode_time, finished.inference_time) == (1.0, 2.0, 5.0, 7.0)
    assert (finished.e2e_latency, finished.finish_reason, finished.max_tokens, finished.n) == (9.0, FinishReason.LENGTH, 7, 1)
    assert (finished.num_prompt_tokens, finished.num_cached_tokens, finished.num_generation_tokens) == (1, 4, 4)


@pytest.mark.property("P68")
def test_aborted_requests_are_counted_once(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    add("r-1")
    add("s-1")
    processor.abort_requests(["r"])
    (finished,) = processor.take_iteration_stats().finished_requests
    assert (finished.finish_reason, finished.queue_time, finished.decode_time) == (FinishReason.ABORT, None, None)
    processor.abort_requests(["s"])
    assert len(step(processor).iteration_stats.finished_requests) == 1
    assert processor.take_iteration_stats().finished_requests == []
