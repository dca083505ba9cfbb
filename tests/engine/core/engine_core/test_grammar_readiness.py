from collections.abc import Callable
from typing import Any

import pytest

from stoker_engine.core.request import RequestStatus
from stoker_engine.core.structured_output import count_computable
from stoker_engine.errors import EngineBusyError, EngineGenerateError, ParameterError
from stoker_engine.finish_reason import FinishReason

MODES = [{}, {"async_scheduling": True}, {"max_concurrent_batches": 4}]


class LateGrammars:
    """Grammars that are there when the test says so, or fail."""

    def __init__(self, engine: Any) -> None:
        self.compile_now = engine.compile
        self.ready = False
        self.error: Exception | None = None

    def compile(self, request: Any, when_compiled: Callable[[], None]) -> Any:
        grammar = self.compile_now(request, when_compiled)
        if grammar is not None:
            grammar.is_ready = self.is_ready
        return grammar

    def is_ready(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.ready


@pytest.fixture(params=MODES)
def late(whole_engine: Callable[..., Any], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, LateGrammars]:
    engine = whole_engine(**request.param)
    grammars = LateGrammars(engine)
    monkeypatch.setattr(engine, "compile", grammars.compile)
    return engine, grammars


@pytest.mark.property("P27")
def test_nobody_waits_for_a_grammar_and_its_request_runs_only_when_it_is_there(late: tuple[Any, LateGrammars]) -> None:
    engine, grammars = late
    engine.add([1, 2, 3], {"max_tokens": 8, "grammar": 4}, 0)
    engine.add([4, 5, 6], {"max_tokens": 3, "eos_token_ids": []}, 0)
    while not engine.engine.results["r0001"].finish_reason:
        engine.step()
        assert "r0000" not in engine.engine.last.num_scheduled_tokens
    assert engine.engine.state.requests["r0000"].status is RequestStatus.WAITING_FOR_GRAMMAR
    assert engine.core.scheduler.make_stats().num_waiting == 1
    for _ in range(3):
        engine.step()
    grammars.ready = True
    engine.settle()


@pytest.mark.parametrize(
    ("error", "parameter", "may_be_retried"),
    [
        (ParameterError("the schema is no schema", "response_format"), "response_format", False),
        (EngineGenerateError("the compiler does not run"), None, False),
        (EngineBusyError("others take its time"), None, True),
    ],
)
@pytest.mark.property("P27")
@pytest.mark.fault("C1")
def test_a_grammar_that_turns_out_to_be_wrong_fails_its_request_alone(
    late: tuple[Any, LateGrammars],
    error: Exception,
    parameter: str | None,
    may_be_retried: bool,  # noqa: FBT001
) -> None:
    engine, grammars = late
    engine.add([1, 2, 3], {"max_tokens": 8, "grammar": 4}, 0)
    engine.add([4, 5, 6], {"max_tokens": 3, "eos_token_ids": []}, 0)
    engine.step()
    grammars.error = error
    while engine.core.has_work():
        engine.step()
    outputs = engine.engine.results["r0000"].outputs
    (output,) = outputs
    assert (output.finish_reason, output.failure_message, output.failed_parameter) == (FinishReason.ERROR, str(error), parameter)
    assert output.may_be_retried is may_be_retried
    assert len(engine.engine.results["r0001"].token_ids) == 3
    engine.doubles.checks.idle(engine.engine)


@pytest.mark.property("P27")
def test_what_waits_for_its_grammar_alone_is_nothing_to_compute_and_nothing_to_tell(late: tuple[Any, LateGrammars]) -> None:
    engine, grammars = late
    engine.add([1, 2, 3], {"max_tokens": 8, "grammar": 4}, 0)
    told = engine.core.step().outputs
    assert [outputs.scheduler_stats.num_deferred for outputs in told.values()] == [1]
    for _ in range(5):
        assert engine.core.has_work()
        assert count_computable(engine.engine.state) == 0
        result = engine.core.step()
        assert not result.executed
        assert result.outputs == {}
    grammars.ready = True
    engine.settle()


@pytest.mark.property("P27")
def test_a_request_that_is_aborted_while_it_waits_for_its_grammar_leaves_nothing(late: tuple[Any, LateGrammars]) -> None:
    engine, _ = late
    engine.add([1, 2, 3], {"max_tokens": 8, "grammar": 4}, 0)
    engine.step()
    engine.abort(["r0000"])
    engine.settle()
    assert not engine.engine.state.awaiting_grammar


@pytest.mark.fault("D13")
def test_a_head_that_cannot_be_admitted_holds_no_grammar_up(whole_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = whole_engine(max_num_seqs=1)
    grammars = LateGrammars(engine)
    monkeypatch.setattr(engine, "compile", grammars.compile)
    for fields in ({"max_tokens": 8}, {"max_tokens": 2}, {"max_tokens": 8, "grammar": 4}):
        engine.add([1, 2, 3], {"eos_token_ids": [], **fields}, 0)
    engine.step()
    grammars.ready = True
    engine.step()
    assert [request.request_id for request in engine.engine.state.waiting] == ["r0001", "r0002"]
    assert engine.engine.state.requests["r0002"].status is RequestStatus.WAITING
    engine.settle()
