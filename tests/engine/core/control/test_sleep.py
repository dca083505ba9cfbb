from collections.abc import Callable
from typing import Any

import pytest

from stoker_engine.core.sleep import SleepLevel
from stoker_engine.errors import EngineGenerateError, ModelLoadError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.protocol import EnginePhase, PauseMode, SleepTag

MakeEngine = Callable[..., Any]

ABORT, WAIT, KEEP = PauseMode


@pytest.mark.case("C063")
@pytest.mark.parametrize("level", [SleepLevel.DEVICE_MEMORY, SleepLevel.WEIGHTS])
@pytest.mark.parametrize("mode", list(PauseMode))
def test_memory_goes_when_nothing_is_computed_and_no_block_is_remembered(controlled: MakeEngine, level: SleepLevel, mode: PauseMode) -> None:
    engine = controlled()
    engine.engine.add("a", range(1, 9), max_tokens=12)
    engine.step()
    future = engine.control.sleep(level, mode)
    engine.run()
    assert future.done()
    assert engine.memory.missing == {"weights", "kv_cache"}
    assert not engine.engine.pool.cached_blocks
    assert engine.phases == [EnginePhase.SLEEPING]
    engine.control.wake_up()
    engine.run()
    assert engine.phases == [EnginePhase.SLEEPING, EnginePhase.READY]
    assert engine.finish_reason("a") in {ABORT: {FinishReason.ABORT}}.get(mode, {FinishReason.STOP, FinishReason.LENGTH})


@pytest.mark.fault("D10")
@pytest.mark.case("C063")
def test_nothing_is_computed_before_every_tag_is_awake(controlled: MakeEngine) -> None:
    engine = controlled()
    engine.control.sleep()
    engine.engine.add("a", range(1, 9))
    for tag in (SleepTag.WEIGHTS, SleepTag.SCHEDULING):
        engine.control.wake_up([tag])
        engine.run()
        assert engine.control.is_sleeping()
        assert engine.token_ids("a") == []
    engine.control.wake_up([SleepTag.KV_CACHE])
    assert not engine.control.is_sleeping()
    engine.run()
    assert engine.token_ids("a")


@pytest.mark.case("C063")
def test_sleeping_twice_and_waking_twice_change_nothing_and_warn(controlled: MakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    engine = controlled()
    engine.control.wake_up()
    assert "the engine is awake" in caplog.text
    engine.control.sleep()
    assert engine.control.sleep(SleepLevel.WEIGHTS, KEEP).done()
    assert "asleep already" in caplog.text
    engine.control.wake_up([SleepTag.WEIGHTS])
    engine.control.wake_up([SleepTag.WEIGHTS])
    assert "weights: awake already" in caplog.text
    engine.control.wake_up()
    assert engine.phases == [EnginePhase.SLEEPING, EnginePhase.READY]


@pytest.mark.fault("D10")
@pytest.mark.parametrize("mode", list(PauseMode))
def test_no_pause_sets_a_kept_request_going_while_memory_is_missing(controlled: MakeEngine, mode: PauseMode) -> None:
    engine = controlled()
    engine.engine.add("a", range(1, 9), max_tokens=12)
    engine.step()
    engine.control.sleep(SleepLevel.DEVICE_MEMORY, KEEP)
    engine.run()
    engine.control.pause(mode)
    engine.run()
    engine.control.sleep(SleepLevel.SCHEDULING, mode)
    engine.run()
    assert len(engine.token_ids("a")) == 1


def test_an_engine_that_sleeps_is_not_resumed_but_woken(controlled: MakeEngine) -> None:
    engine = controlled()
    engine.control.sleep()
    with pytest.raises(EngineGenerateError, match="wake_up resumes it"):
        engine.control.resume()
    assert engine.control.is_paused()


@pytest.mark.case("C064")
def test_weights_that_cannot_be_loaded_again_leave_the_engine_asleep_and_may_be_tried_again(controlled: MakeEngine) -> None:
    engine = controlled()
    engine.control.sleep(SleepLevel.WEIGHTS)
    engine.memory.load_error = "the file is gone"
    with pytest.raises(ModelLoadError, match="the file is gone"):
        engine.control.wake_up()
    assert engine.control.is_sleeping()
    engine.memory.load_error = None
    engine.control.wake_up()
    assert not engine.control.is_sleeping()
    assert not engine.memory.missing


def test_a_sleep_that_fails_half_way_computes_nothing_and_can_be_woken(controlled: MakeEngine, reference_output: Callable[..., Any]) -> None:
    engine = controlled()
    engine.engine.add("a", range(1, 9), max_tokens=3, eos_token_ids=[])
    engine.step()
    engine.memory.sleep_error = "no room for the weights"
    future = engine.control.sleep(SleepLevel.DEVICE_MEMORY, KEEP)
    engine.run()
    with pytest.raises(RuntimeError, match="no room for the weights"):
        future.result(0)
    assert engine.control.is_sleeping()
    assert engine.phases == [EnginePhase.SLEEPING]
    engine.control.wake_up()
    engine.run()
    assert engine.phases == [EnginePhase.SLEEPING, EnginePhase.READY]
    assert engine.token_ids("a") == reference_output(range(1, 9), max_tokens=3, eos_token_ids=[]).token_ids


def test_level_0_keeps_memory_and_cache(controlled: MakeEngine) -> None:
    engine = controlled()
    engine.engine.add("a", range(1, 9))
    engine.run()
    engine.control.sleep(SleepLevel.SCHEDULING)
    assert engine.control.is_sleeping()
    assert not engine.memory.missing
    assert engine.engine.pool.cached_blocks
    engine.control.wake_up([SleepTag.SCHEDULING])
    assert not engine.control.is_sleeping()


def test_a_drain_lets_the_requests_of_a_sleep_with_memory_finish_and_is_not_taken_for_a_wake_up(controlled: MakeEngine) -> None:
    engine = controlled()
    engine.engine.add("a", range(1, 9), max_tokens=3, eos_token_ids=[])
    engine.step()
    engine.control.sleep(SleepLevel.SCHEDULING, KEEP)
    assert engine.control.begin_drain()
    engine.run()
    assert engine.finish_reason("a") is FinishReason.LENGTH
    assert engine.phases == [EnginePhase.SLEEPING]


def test_a_pause_ends_with_its_client_and_a_sleep_does_not(controlled: MakeEngine) -> None:
    engine = controlled()
    engine.control.pause(KEEP)
    engine.control.client_gone()
    assert not engine.control.is_paused()
    engine.control.sleep()
    engine.control.client_gone()
    assert engine.control.is_sleeping()
    assert engine.memory.missing


def test_a_sleep_that_waits_for_requests_ends_with_its_client(controlled: MakeEngine) -> None:
    engine = controlled()
    engine.engine.add("a", range(1, 9))
    engine.step()
    pending = engine.control.sleep(SleepLevel.WEIGHTS, WAIT)
    engine.control.client_gone()
    assert pending.exception() is not None
    engine.run()
    assert not engine.control.is_paused()
    assert not engine.memory.missing
