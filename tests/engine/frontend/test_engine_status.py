import pytest

from stoker_engine.frontend.engine_status import EngineState, EngineStatus
from stoker_engine.protocol import EngineCoreReadyResponse, EnginePhase, Heartbeat

READY = EngineCoreReadyResponse(
    max_model_len=1000,
    max_num_seqs=4,
    max_logprobs=20,
    num_blocks=64,
    block_size=16,
    vocab_size=100,
    dtype="float32",
    version="1",
    priority_scheduling=False,
    prefix_caching=True,
)


def status(phase: EnginePhase | None = EnginePhase.READY, **fields: object) -> EngineStatus:
    values = {"is_connected": True, "hang_seconds": 60.0, "ready": READY} | fields
    return EngineStatus(phase=phase, **values)  # type: ignore[arg-type]


def beat(step_age: float = 0.0, loop_age: float = 0.0) -> Heartbeat:
    return Heartbeat(num_steps=5, loop_age=loop_age, step_age=step_age, num_requests=1)


@pytest.mark.parametrize(
    ("seen", "state", "serves"),
    [
        (EngineStatus(), EngineState.ABSENT, False),
        (status(EnginePhase.STARTING, ready=None), EngineState.LOADING, False),
        (status(EnginePhase.LOADING, ready=None), EngineState.LOADING, False),
        (status(EnginePhase.WARMING_UP, ready=None), EngineState.LOADING, False),
        (status(), EngineState.READY, True),
        (status(heartbeat=beat(step_age=0.5)), EngineState.READY, True),
        (status(heartbeat=beat(step_age=20.0, loop_age=20.0)), EngineState.BUSY, True),
        (status(heartbeat=beat(loop_age=1.5)), EngineState.BUSY, True),
        (status(silence=3.5), EngineState.UNRESPONSIVE, False),
        (status(silence=60.5), EngineState.UNRESPONSIVE, False),
        (status(silence=61.5), EngineState.HUNG, False),
        (status(heartbeat=beat(step_age=60.5)), EngineState.HUNG, False),
        (status(heartbeat=beat(), stall=60.5), EngineState.READY, True),
        (status(heartbeat=beat(), stall=61.5), EngineState.HUNG, False),
        (status(EnginePhase.FAILED, ready=None, is_connected=False, is_given_up=True), EngineState.HUNG, False),
        (status(EnginePhase.SLEEPING), EngineState.SLEEPING, False),
        (status(EnginePhase.DRAINING), EngineState.DRAINING, False),
        (status(EnginePhase.FAILED, ready=None), EngineState.FAILED, False),
        (status(EnginePhase.FAILED, ready=None, is_connected=False), EngineState.DEAD, False),
        (status(ready=None), EngineState.READY, False),
    ],
    ids=lambda value: str(getattr(value, "value", "")),
)
def test_what_is_known_of_an_engine_makes_its_state(seen: EngineStatus, state: EngineState, serves: bool) -> None:  # noqa: FBT001 - a column of the table
    assert (seen.state, seen.is_ready) == (state, serves)


def test_a_sleeping_engine_takes_calls_and_no_requests() -> None:
    asleep = status(EnginePhase.SLEEPING)
    assert asleep.takes_calls and not asleep.is_ready
    assert not status(EnginePhase.LOADING, ready=None).takes_calls


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (EngineStatus(), "no engine has connected yet"),
        (status(EnginePhase.WARMING_UP, ready=None), "the engine is warming up"),
        (status(silence=4.0), "the engine is unresponsive: it has not been heard of for 4 s"),
        (status(heartbeat=beat(step_age=70.0)), "the engine is hung: its step has been running for 70 s"),
        (status(EnginePhase.FAILED, is_connected=False, is_given_up=True, message="its words", silence=99.0), "the engine is hung: its words"),
        (status(EnginePhase.FAILED, is_connected=False, message="tensor x is missing"), "the engine is gone: tensor x is missing"),
        (status(EnginePhase.SLEEPING), "the engine is sleeping"),
        (status(), "the engine is connecting"),
    ],
    ids=lambda value: "" if isinstance(value, EngineStatus) else value,
)
def test_an_engine_that_does_not_serve_is_explained(seen: EngineStatus, words: str) -> None:
    assert seen.explanation == words


def test_who_waited_in_vain_is_told_the_phase_and_for_how_long() -> None:
    waiting = status(EnginePhase.LOADING, ready=None, progress=0.37, seconds=12.3, silence=0.4)
    assert waiting.summary == "the engine is loading, in phase loading (37%) for 12 s, last heard of 0.4 s ago"
    assert EngineStatus().summary == "no engine has said hello"
