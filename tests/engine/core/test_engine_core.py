import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from stoker_engine.core.engine_core import EngineCore
from stoker_engine.errors import ConfigError, ParameterError
from stoker_engine.executor.base import ModelDescription, OnDownload
from stoker_engine.finish_reason import FinishReason
from stoker_engine.protocol import EnginePhase

A = [1 + i % 27 for i in range(60)]
NUM_BLOCKS = 32
TWO_BATCHES = {"max_concurrent_batches": 2}
ASYNC = {"async_scheduling": True}


class ScriptedCore:
    """An EngineCore over the hash model; `fail_at` names the call of the executor that fails; so do all after it."""

    def __init__(self, engine: Any, config: Any, *, is_causal: bool = True, grammars: Any = None) -> None:
        self.engine, self.is_causal = engine, is_causal
        self.fail_at: dict[str, int] = {}
        self.has_failed = False
        self.calls: list[str] = []
        self.core = EngineCore(config, self, self) if grammars is None else EngineCore(config, self, self, grammars)
        engine.scheduler = self.core.scheduler

    def report_phase(self, phase: EnginePhase, progress: float) -> None:
        """Nobody listens."""

    def fetch_model(self, on_progress: OnDownload) -> None: ...

    def load_model(self, on_progress: Callable[[float], None]) -> ModelDescription:
        return ModelDescription(max_model_len=64, vocab_size=29, dtype="float32", kv_block_bytes=1, is_causal=self.is_causal)

    def profile(self) -> int:
        return NUM_BLOCKS

    def initialize_kv_cache(self, num_blocks: int) -> None:
        assert num_blocks == NUM_BLOCKS

    def execute_model(self, scheduler_output: Any) -> Future[Any]:
        return self._call("forward", lambda: self.engine.executor.execute_model(scheduler_output).result())

    def sample_tokens(self, grammar_output: Any) -> Future[Any]:
        return self._call("sample", lambda: self.engine.executor.sample_tokens(grammar_output).result())

    def _call(self, name: str, call: Callable[[], Any]) -> Future[Any]:
        self.calls.append(name)
        future: Future[Any] = Future()
        if self.has_failed:
            future.set_exception(RuntimeError("a call after the failure"))
        elif self.calls.count(name) == self.fail_at.get(name):
            self.has_failed = True
            future.set_exception(RuntimeError(f"the {name} fails"))
        else:
            future.set_result(call())
        return future


@pytest.fixture
def core_of(engine_of: Callable[..., Any], config_of: Callable[..., Any], request_of: Callable[..., Any]) -> Callable[..., ScriptedCore]:
    def make(*, is_causal: bool = True, grammars: Any = None, **settings: Any) -> ScriptedCore:
        scripted = ScriptedCore(engine_of(NUM_BLOCKS, 64, **settings), config_of(**settings), is_causal=is_causal, grammars=grammars)
        scripted.add = lambda request_id, prompt, **fields: scripted.core.add_request(  # type: ignore[attr-defined]
            scripted.core.preprocess(request_of(request_id, prompt, **fields).wire)
        )
        return scripted

    return make


def run(core: EngineCore) -> dict[str, list[Any]]:
    outputs: dict[str, list[Any]] = {}
    while core.has_work():
        for message in core.step().outputs.values():
            for output in message.outputs:
                outputs.setdefault(output.request_id, []).append(output)
    return outputs


def token_ids(outputs: list[Any]) -> list[int]:
    return [token_id for output in outputs for token_id in output.new_token_ids]


@pytest.mark.parametrize("mode", [{}, TWO_BATCHES, ASYNC])
def test_a_core_steps_as_its_settings_say_and_ends_idle(core_of: Callable[..., Any], reference_output: Callable[..., Any], mode: dict[str, Any]) -> None:
    scripted = core_of(**mode)
    scripted.add("a", A[:9], max_tokens=6, eos_token_ids=[])
    scripted.add("b", A[20:23], max_tokens=3, eos_token_ids=[])
    first = scripted.core.step()
    assert first.executed
    assert bool(first.outputs) == (not mode)
    outputs = run(scripted.core)
    for message in first.outputs.values():
        for output in message.outputs:
            outputs[output.request_id].insert(0, output)
    assert token_ids(outputs["a"]) == reference_output(A[:9], max_tokens=6, eos_token_ids=[]).token_ids
    assert token_ids(outputs["b"]) == reference_output(A[20:23], max_tokens=3, eos_token_ids=[]).token_ids
    assert not scripted.core.has_work()
    assert not scripted.core.step().executed


@pytest.mark.property("P66")
@pytest.mark.fault("C18")
@pytest.mark.parametrize("mode", [{}, TWO_BATCHES, ASYNC])
def test_an_abort_from_another_thread_takes_effect_before_the_running_steps_result(core_of: Callable[..., Any], mode: dict[str, Any]) -> None:
    scripted = core_of(**mode)
    scripted.add("a", A[:9], eos_token_ids=[])
    scripted.add("b", A[20:23], max_tokens=1)
    scripted.core.abort_eagerly(["a"])
    assert list(run(scripted.core)) == ["b"]


def test_aborts_of_another_thread_do_not_wait_for_a_step_once_one_comes_in_its_order(core_of: Callable[..., Any]) -> None:
    scripted = core_of()
    scripted.add("a", A[:9])
    scripted.core.abort_eagerly(["a", "unknown"])
    scripted.core.abort_requests(["unknown"])
    assert scripted.core.scheduler.num_unfinished_requests == 0


def test_the_end_of_all_requests_is_told_with_the_ends_that_waited_for_a_step(core_of: Callable[..., Any], request_of: Callable[..., Any]) -> None:
    scripted = core_of()
    scripted.core.add_request(request_of("too long", [1] * 64))
    scripted.add("paused", A[:9])
    scripted.core.control.pause()
    scripted.add("live", A[:9])
    ((client_index, message),) = scripted.core.abort_all_requests().items()
    assert client_index == 0
    assert {output.request_id: output.finish_reason for output in message.outputs} == {
        "too long": FinishReason.ERROR,
        "paused": FinishReason.ABORT,
        "live": FinishReason.ABORT,
    }
    assert run(scripted.core) == {}


@pytest.mark.parametrize("mode", [{}, TWO_BATCHES, ASYNC])
@pytest.mark.parametrize("call", ["forward", "sample"])
def test_a_step_that_fails_is_logged_with_its_schedule_and_statistics_and_raised(
    core_of: Callable[..., Any], caplog: pytest.LogCaptureFixture, mode: dict[str, Any], call: str
) -> None:
    scripted = core_of(**mode)
    scripted.fail_at = {call: 2}
    scripted.add("the request", [26, 25, 24], eos_token_ids=[])
    with caplog.at_level(logging.ERROR), pytest.raises(RuntimeError, match=f"the {call} fails"):
        run(scripted.core)
    (record,) = (record for record in caplog.records if "a step failed" in record.message)
    assert "'the request': 1" in record.message
    assert "num_running=1" in record.message
    assert "26, 25, 24" not in record.message


def test_a_model_that_is_not_causal_gets_whole_prompts_and_no_prefix_cache(core_of: Callable[..., Any]) -> None:
    scripted = core_of(is_causal=False)
    assert scripted.core.config.enable_prefix_caching is scripted.core.config.enable_chunked_prefill is False
    assert scripted.core.ready_response.prefix_caching is False
    scheduled = []
    forward = scripted.engine.executor.on_forward
    scripted.engine.executor.on_forward = lambda output: (forward(output), scheduled.append(output.num_scheduled_tokens))
    for request_id in ("a", "b", "c"):
        scripted.add(request_id, A[:30], max_tokens=1)
    outputs = run(scripted.core)
    assert [step for step in scheduled if step] == [{"a": 30, "b": 30}, {"c": 30}]
    assert all(outputs[request_id][0].prefill_stats.num_cached_tokens == 0 for request_id in ("a", "b", "c"))


def test_a_model_that_is_not_causal_needs_a_budget_for_its_longest_prompt(core_of: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="--max-num-batched-tokens must be at least max_model_len"):
        core_of(is_causal=False, max_num_batched_tokens=32)


@pytest.mark.property("P27")
@pytest.mark.fault("C1")
def test_a_grammar_that_cannot_be_compiled_fails_before_the_scheduler_sees_it(core_of: Callable[..., Any]) -> None:
    class Refusing:
        def compile(self, request: Any, when_compiled: Any) -> None:
            if request.request_id == "bad":
                raise ParameterError("the schema is no schema", "response_format")

    scripted = core_of(grammars=Refusing())
    with pytest.raises(ParameterError, match="no schema"):
        scripted.add("bad", A[:3])
    scripted.add("good", A[:3], max_tokens=2, eos_token_ids=[])
    assert list(run(scripted.core)) == ["good"]


@pytest.mark.fault("C3")
@pytest.mark.parametrize("mode", [{}, ASYNC])
def test_a_request_that_can_never_run_is_answered_by_an_engine_with_nothing_else_to_do(
    core_of: Callable[..., Any], request_of: Callable[..., Any], mode: dict[str, Any]
) -> None:
    scripted = core_of(**mode)
    scripted.core.add_request(request_of("long", [1] * 64))
    outputs = run(scripted.core)
    assert [output.finish_reason for output in outputs["long"]] == [FinishReason.ERROR]
    assert scripted.calls in ([], ["forward"])
