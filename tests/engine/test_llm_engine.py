"""Everything holds with the engine in another process and in this one."""

import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stoker_engine import batch_window
from stoker_engine.errors import EngineDeadError, EngineError, EngineGenerateError, ParameterError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.clients import sync_mp
from stoker_engine.llm_engine import LLMEngine
from stoker_engine.outputs import RequestOutput
from stoker_engine.protocol import EngineCoreRequest, PauseMode
from stoker_engine.sampling_params import RequestOutputKind, SamplingParams
from stoker_engine.stats import IterationStats, SchedulerStats
from stoker_engine.testing import Script
from stoker_engine.tokenizer import Tokenizer

CUMULATIVE, DELTA, FINAL_ONLY = RequestOutputKind.CUMULATIVE, RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY
FOREVER = SamplingParams(max_tokens=5000, ignore_eos=True)
ONE_TOKEN = SamplingParams(temperature=0, max_tokens=1)
BAD_TOKEN = 7

StartEngine = Callable[..., LLMEngine]
Start = Callable[..., LLMEngine]


@pytest.fixture(scope="module", params=[True, False], ids=["another process", "this process"])
def multiprocess_mode(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def start(multiprocess_mode: bool, start_llm_engine: StartEngine) -> Start:  # noqa: FBT001
    return functools.partial(start_llm_engine, multiprocess_mode=multiprocess_mode)


@pytest.fixture(scope="module")
def shared_engine(multiprocess_mode: bool, make_llm_engine: StartEngine) -> Iterator[LLMEngine]:  # noqa: FBT001
    engine = make_llm_engine(Script(step_seconds=0.001, failing_token_id=BAD_TOKEN), multiprocess_mode=multiprocess_mode)
    yield engine
    engine.shutdown()


@pytest.fixture
def engine(shared_engine: LLMEngine) -> Iterator[LLMEngine]:
    """Shared by the tests of a mode, each of which leaves it idle."""
    yield shared_engine
    assert not shared_engine.has_unfinished_requests()
    assert not shared_engine.control.is_paused()


def drain(engine: LLMEngine) -> list[RequestOutput]:
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    return outputs


def stats_of(engine: LLMEngine) -> dict[str, Any]:
    stats: dict[str, Any] = engine.call_utility("get_scheduler_stats")
    return stats


def run_until_first_output(engine: LLMEngine) -> None:
    while not engine.step():
        assert engine.has_unfinished_requests()


@pytest.mark.fault("G16")
@pytest.mark.parametrize("kind", [CUMULATIVE, DELTA, FINAL_ONLY])
def test_an_aborted_request_ends_with_its_tokens_so_far(engine: LLMEngine, kind: RequestOutputKind) -> None:
    engine.add_request("mine", "Hello", SamplingParams(max_tokens=5000, ignore_eos=True, output_kind=kind))
    engine.add_request("other", "Hello", SamplingParams(max_tokens=20, ignore_eos=True))
    while len(engine.step()) < 2 - (kind is FINAL_ONLY):
        pass
    engine.abort_request(["mine"])
    last = [output for output in drain(engine) if output.request_id == "mine" and output.finished]
    assert [output.outputs[0].finish_reason for output in last] == [FinishReason.ABORT]
    assert last[0].num_output_tokens >= 1
    assert len(last[0].outputs[0].token_ids) == (0 if kind is DELTA else last[0].num_output_tokens)
    assert stats_of(engine)["num_running"] == 0


def test_aborting_a_request_aborts_all_its_choices(engine: LLMEngine) -> None:
    internal_id = engine.add_request("mine", "Hello", SamplingParams(n=3, max_tokens=5000, ignore_eos=True, output_kind=FINAL_ONLY))
    assert engine.num_unfinished_requests == 3
    engine.abort_request([internal_id, "unknown"])
    (output,) = drain(engine)
    assert [(choice.index, choice.finish_reason) for choice in output.outputs] == [(index, FinishReason.ABORT) for index in range(3)]
    assert stats_of(engine)["num_running"] + stats_of(engine)["num_waiting"] == 0


@pytest.mark.property("P34")
@pytest.mark.fault("G16")
def test_a_pause_that_aborts_gives_last_outputs(engine: LLMEngine) -> None:
    engine.add_request("mine", "Hello", FOREVER)
    run_until_first_output(engine)
    engine.control.pause_generation(PauseMode.ABORT)
    assert drain(engine)[-1].outputs[0].finish_reason is FinishReason.ABORT
    assert engine.control.is_paused()
    engine.add_request("later", "Hello", ONE_TOKEN)
    engine.control.resume_generation()
    assert drain(engine)[-1].finished


def test_a_step_of_a_paused_engine_gives_nothing_and_the_same_thread_may_resume(engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_mp, "MAX_WAIT_SECONDS", 0.01)
    engine.control.pause_generation(PauseMode.KEEP)
    engine.add_request("mine", "Hello", ONE_TOKEN)
    assert engine.step() == []
    assert engine.has_unfinished_requests()
    engine.control.resume_generation()
    assert drain(engine)[-1].finished


def test_a_pause_that_waits_lets_requests_finish(engine: LLMEngine) -> None:
    engine.add_request("mine", "Hello", SamplingParams(temperature=0, max_tokens=30, ignore_eos=True))
    run_until_first_output(engine)
    engine.control.pause_generation(PauseMode.WAIT)
    assert drain(engine)[-1].outputs[0].finish_reason is FinishReason.LENGTH
    engine.control.resume_generation()


def test_a_stop_string_ends_it_in_the_core_too(start: Start, smollm2_tokenizer: Tokenizer) -> None:
    engine = start(Script(default_reply=smollm2_tokenizer.encode("one two three four") * 100, step_seconds=0.001))
    engine.add_request("mine", "Hello", SamplingParams(temperature=0, max_tokens=4000, stop=["three"]))
    last = drain(engine)[-1]
    assert (last.outputs[0].text, last.outputs[0].stop_reason) == ("one two ", "three")
    assert stats_of(engine)["num_running"] == 0


@pytest.mark.property("P48")
@pytest.mark.parametrize("kind", [CUMULATIVE, DELTA, FINAL_ONLY])
def test_each_of_n_choices_finishes_once_and_the_request_last(engine: LLMEngine, kind: RequestOutputKind) -> None:
    engine.add_request("mine", "Hello", SamplingParams(n=3, max_tokens=5, ignore_eos=True, output_kind=kind))
    outputs = drain(engine)
    ended = [choice.index for output in outputs for choice in output.outputs if choice.finish_reason is not None]
    assert sorted(ended) == [0, 1, 2]
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    assert outputs[-1].num_output_tokens == 15
    assert len(outputs[-1].outputs) == (3 if kind is FINAL_ONLY else 1)


@pytest.mark.fault("B11")
def test_a_request_that_fails_alone_says_why_and_leaves_the_others(engine: LLMEngine) -> None:
    engine.add_request("bad", [BAD_TOKEN], FOREVER)
    engine.add_request("good", [8], SamplingParams(max_tokens=3, ignore_eos=True))
    finished = {output.request_id: output for output in drain(engine) if output.finished}
    assert (finished["bad"].outputs[0].finish_reason, finished["bad"].failure_message) == (FinishReason.ERROR, "the script fails this request")
    assert (finished["good"].outputs[0].finish_reason, finished["good"].failure_message) == (FinishReason.LENGTH, None)


def test_a_choice_that_fails_ends_its_request_once(engine: LLMEngine) -> None:
    engine.add_request("bad", [BAD_TOKEN], SamplingParams(n=3, max_tokens=9, output_kind=FINAL_ONLY))
    (output,) = drain(engine)
    assert output.finished and output.failure_message == "the script fails this request"
    assert output.outputs[0].finish_reason is FinishReason.ERROR
    assert stats_of(engine)["num_running"] + stats_of(engine)["num_waiting"] == 0


def test_a_ready_request_brings_its_own_id_and_warns_once(engine: LLMEngine, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(2):
        ready = EngineCoreRequest(f"own-{number}", [1, 2], SamplingParams(max_tokens=2, ignore_eos=True), arrival_time=0.0)
        engine.add_request("argument", ready)
    assert {output.request_id for output in drain(engine)} == {"own-0", "own-1"}
    messages = [record.getMessage() for record in caplog.records]
    assert sum("deprecated" in message for message in messages) <= 1  # the process's first one may have been in another test
    assert "request own-1: its own id is used, not argument" in messages


def test_a_ready_request_is_checked_like_any_other(engine: LLMEngine) -> None:
    with pytest.raises(ParameterError, match="outside the vocabulary"):
        engine.add_request("a", EngineCoreRequest("a", [10**6], SamplingParams(max_tokens=2), arrival_time=0.0))


def test_an_id_that_is_no_text_is_refused(engine: LLMEngine) -> None:
    with pytest.raises(TypeError, match="request_id must be a str, got a int"):
        engine.add_request(7, "Hello", ONE_TOKEN)  # type: ignore[arg-type]


@pytest.mark.property("P49")
@pytest.mark.fault("D1")
def test_external_ids_may_repeat_and_internal_ids_never_do(engine: LLMEngine) -> None:
    internal_ids = [engine.add_request("same", "Hello", ONE_TOKEN) for _ in range(20)]
    assert len(set(internal_ids)) == 20
    finished = [output for output in drain(engine) if output.finished]
    assert [output.request_id for output in finished] == ["same"] * 20


def test_trace_headers_come_back(engine: LLMEngine) -> None:
    engine.add_request("mine", "Hello", ONE_TOKEN, trace_headers={"traceparent": "00-1"})
    assert drain(engine)[-1].trace_headers == {"traceparent": "00-1"}


def test_a_step_with_nothing_to_do_gives_nothing_at_once(engine: LLMEngine) -> None:
    assert engine.step() == []
    assert not engine.has_unfinished_requests()


def test_generated_outputs_are_in_the_order_of_the_prompts(engine: LLMEngine, capfd: pytest.CaptureFixture[str]) -> None:
    params = [SamplingParams(temperature=0, max_tokens=9 - index, ignore_eos=True, output_kind=DELTA) for index in range(8)]
    outputs = engine.generate([f"prompt {index}" for index in range(8)], params, progress=False)
    assert [output.prompt for output in outputs] == [f"prompt {index}" for index in range(8)]
    assert [len(output.outputs[0].token_ids) for output in outputs] == [9 - index for index in range(8)]
    assert capfd.readouterr().err == ""


def test_a_progress_bar_counts_the_requests(engine: LLMEngine, capfd: pytest.CaptureFixture[str]) -> None:
    engine.generate(["a", "b"], ONE_TOKEN)
    assert "2/2" in capfd.readouterr().err


def test_nothing_goes_on_of_a_batch_that_is_refused(engine: LLMEngine) -> None:
    with pytest.raises(ParameterError, match="prompt must not be empty"):
        engine.generate(["good", "good", []], FOREVER)
    assert not engine.has_unfinished_requests()
    assert len(engine.generate(["Hello"], ONE_TOKEN)) == 1
    assert stats_of(engine)["num_running"] == 0


def test_a_large_batch_is_sent_as_others_finish(engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_window, "MAX_REQUESTS", 4)
    monkeypatch.setattr(batch_window, "MAX_PROMPT_TOKENS", 30)
    params = [SamplingParams(n=1 + index % 3, max_tokens=1 + index % 5, ignore_eos=True) for index in range(40)]
    prompts = [[1] * (1 + 7 * (index % 6)) for index in range(40)]
    most, step = 0, engine.step

    def watched_step() -> list[RequestOutput]:
        nonlocal most
        most = max(most, engine.num_unfinished_requests)
        return step()

    monkeypatch.setattr(engine, "step", watched_step)
    outputs = engine.generate(prompts, params, progress=False)
    assert [output.prompt_token_ids for output in outputs] == prompts
    assert [output.num_output_tokens for output in outputs] == [(1 + index % 3) * (1 + index % 5) for index in range(40)]
    assert 3 <= most <= 4


def test_a_batch_wants_the_engine_for_itself(engine: LLMEngine) -> None:
    engine.add_request("mine", "Hello", ONE_TOKEN)
    with pytest.raises(RuntimeError, match="1 requests are unfinished"):
        engine.generate(["Hello"], ONE_TOKEN)
    assert drain(engine)[-1].finished


@pytest.mark.fault("B9")
def test_a_call_of_no_utility_method_fails_alone(engine: LLMEngine) -> None:
    with pytest.raises(EngineGenerateError, match="it is no utility method"):
        engine.call_utility("__init__")
    assert engine.generate(["Hello"], ONE_TOKEN, progress=False)[0].finished


def test_stat_loggers_get_the_numbers_of_every_step(start: Start) -> None:
    class Recorder:
        def __init__(self) -> None:
            self.num_steps = self.num_tokens = self.num_finished = 0

        def record(self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats) -> None:
            self.num_steps += scheduler_stats is not None
            self.num_tokens += iteration_stats.num_generation_tokens
            self.num_finished += len(iteration_stats.finished_requests)

    recorder = Recorder()
    engine = start(Script(), recorder)
    engine.add_request("aborted", "Hello", FOREVER)
    engine.abort_request(["aborted"])
    engine.add_request("finished", "Hello", SamplingParams(max_tokens=4, ignore_eos=True))
    drain(engine)
    assert (recorder.num_tokens, recorder.num_finished) == (4, 2)
    assert recorder.num_steps >= 4


@pytest.mark.property("P55")
@pytest.mark.parametrize("crash", [True, False], ids=["an exception", "shutdown"])
def test_after_the_engines_end_every_call_fails_at_once(start: Start, crash: bool) -> None:  # noqa: FBT001
    engine = start(Script(crash_at_step=3))
    engine.add_request("mine", "Hello", FOREVER)
    if crash:
        with pytest.raises(EngineDeadError, match="the script crashes in step 3"):
            drain(engine)
    else:
        engine.shutdown()
    assert not engine.has_unfinished_requests()
    for call in (lambda: engine.add_request("a", "Hello", ONE_TOKEN), lambda: engine.call_utility("is_paused"), lambda: engine.generate(["a"], ONE_TOKEN)):
        with pytest.raises(EngineDeadError, match="crashes in step 3" if crash else "shut down"):
            call()
    engine.abort_request(["mine"])
    assert engine.step() == []


@pytest.mark.property("P50", "P55")
@pytest.mark.fault("B5")
@pytest.mark.parametrize("end", ["SIGKILL", "shutdown"])
def test_a_pending_utility_call_fails_when_the_engine_goes(start_llm_engine: StartEngine, end: str) -> None:
    engine = start_llm_engine(Script(step_seconds=0.001), multiprocess_mode=True)
    assert engine.process is not None
    engine.add_request("mine", "Hello", FOREVER)
    run_until_first_output(engine)
    failures: list[EngineError] = []

    def wait_for_ever() -> None:
        try:
            engine.control.pause_generation(PauseMode.WAIT)
        except EngineError as error:
            failures.append(error)

    thread = threading.Thread(target=wait_for_ever)
    thread.start()
    while not engine.control.is_paused():
        pass
    if end == "SIGKILL":
        os.kill(engine.process.pid, signal.SIGKILL)
    else:
        engine.shutdown()
    thread.join(10.0)
    assert [type(error) for error in failures] == [EngineDeadError]


def test_the_death_of_the_process_names_its_signal(start_llm_engine: StartEngine) -> None:
    engine = start_llm_engine(Script(step_seconds=0.001), multiprocess_mode=True)
    assert engine.process is not None
    engine.add_request("mine", "Hello", FOREVER)
    run_until_first_output(engine)
    os.kill(engine.process.pid, signal.SIGKILL)
    with pytest.raises(EngineDeadError, match="the engine was killed by SIGKILL"):
        drain(engine)
    with pytest.raises(EngineDeadError, match="SIGKILL"):
        engine.add_request("later", "Hello", ONE_TOKEN)
