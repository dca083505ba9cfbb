from collections.abc import Callable
from typing import Any

import pytest

from stoker_engine.errors import EngineGenerateError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.protocol import PauseMode

MakeEngine = Callable[..., Any]

ABORT, WAIT, KEEP = PauseMode


@pytest.mark.property("P34")
def test_abort_ends_every_request_and_tells_it_before_the_pause_is_done(controlled: MakeEngine) -> None:
    engine = controlled(max_num_seqs=1)
    engine.engine.add("running", range(1, 9))
    engine.engine.add("waiting", range(1, 9))
    engine.step()
    future = engine.control.pause(ABORT)
    assert not future.done()
    engine.run()
    assert future.done()
    assert [engine.finish_reason(name) for name in ("running", "waiting")] == [FinishReason.ABORT] * 2


def test_a_pause_without_work_is_done_at_once(controlled: MakeEngine) -> None:
    assert controlled().control.pause(WAIT).done()


@pytest.mark.property("P33")
@pytest.mark.parametrize("mode", list(PauseMode))
def test_requests_that_come_during_a_pause_wait_for_its_end(controlled: MakeEngine, reference_output: Callable[..., Any], mode: PauseMode) -> None:
    engine = controlled()
    engine.control.pause(mode)
    engine.engine.add("late", range(1, 9))
    engine.run()
    assert engine.token_ids("late") == []
    engine.control.resume()
    engine.run()
    assert engine.token_ids("late") == reference_output(list(range(1, 9))).token_ids


@pytest.mark.property("P33")
def test_wait_lets_requests_in_flight_finish_and_admits_no_other(controlled: MakeEngine) -> None:
    engine = controlled(max_num_seqs=1)
    engine.engine.add("running", range(1, 9), eos_token_ids=[])
    engine.engine.add("waiting", range(1, 9))
    engine.step()
    future = engine.control.pause(WAIT)
    engine.run()
    assert future.done()
    assert engine.finish_reason("running") is FinishReason.LENGTH
    assert engine.token_ids("waiting") == []


@pytest.mark.property("P33")
@pytest.mark.fault("D19")
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_wait_counts_preempted_requests_as_in_flight(controlled: MakeEngine, policy: str) -> None:
    engine = controlled(6, scheduling_policy=policy)
    for name in ("first", "second"):
        engine.engine.add(name, range(1, 8), max_tokens=8, eos_token_ids=[], priority=1)
    while not engine.step().preempted_request_ids:
        pass
    engine.engine.add("new", [5], priority=0)
    future = engine.control.pause(WAIT)
    engine.run()
    assert future.done()
    assert [engine.finish_reason(name) for name in ("first", "second")] == [FinishReason.LENGTH] * 2
    assert engine.token_ids("new") == []


@pytest.mark.property("P33")
@pytest.mark.parametrize("clear_cache", [True, False])
def test_kept_requests_stand_still_and_go_on_with_equal_output(controlled: MakeEngine, reference_output: Callable[..., Any], *, clear_cache: bool) -> None:
    engine = controlled()
    engine.engine.add("kept", range(1, 9), max_tokens=12)
    engine.step()
    engine.step()
    assert not engine.control.pause(KEEP, clear_cache).cancelled()
    engine.run()
    assert not engine.engine.scheduler.has_requests()
    assert len(engine.token_ids("kept")) == 2
    engine.control.resume()
    engine.run()
    assert engine.token_ids("kept") == reference_output(list(range(1, 9)), max_tokens=12).token_ids


def test_an_abort_ends_a_kept_request(controlled: MakeEngine) -> None:
    engine = controlled()
    engine.engine.add("kept", range(1, 9))
    engine.step()
    engine.control.pause(KEEP, False)
    engine.engine.abort("kept")
    engine.run()
    assert engine.engine.pool.num_free_blocks == engine.engine.pool.num_usable_blocks


def test_a_pause_clears_the_prefix_cache_unless_told_not_to(controlled: MakeEngine) -> None:
    engine = controlled()
    engine.engine.add("a", range(1, 9))
    engine.run()
    engine.control.pause(WAIT, False)
    assert engine.engine.pool.cached_blocks
    engine.control.pause(WAIT)
    assert not engine.engine.pool.cached_blocks


def test_resume_ends_a_pending_pause_which_fails(controlled: MakeEngine) -> None:
    engine = controlled()
    engine.engine.add("a", range(1, 9), max_tokens=20)
    engine.step()
    pending = engine.control.pause(WAIT)
    engine.control.resume()
    assert "resumed before it had paused" in str(pending.exception())
    engine.run()
    assert not engine.control.is_paused()


@pytest.mark.property("P39")
def test_resetting_the_prefix_cache_is_refused_while_blocks_are_in_use(controlled: MakeEngine) -> None:
    engine = controlled()
    engine.engine.add("a", range(1, 9))
    engine.step()
    assert not engine.control.reset_prefix_cache()
    engine.run()
    assert engine.control.reset_prefix_cache()
    assert not engine.engine.pool.cached_blocks


@pytest.mark.property("P39", "P40")
@pytest.mark.fault("D15")
def test_a_forced_reset_keeps_the_order_of_requests_and_their_output(controlled: MakeEngine, reference_output: Callable[..., Any]) -> None:
    engine = controlled(max_num_seqs=3)
    names = ["a", "b", "c", "d"]
    for index, name in enumerate(names):
        engine.engine.add(name, range(index + 1, index + 9))
    engine.step()
    assert engine.control.reset_prefix_cache(True)
    assert [request.request_id for request in engine.engine.state.waiting] == names
    assert not engine.engine.pool.cached_blocks
    engine.run()
    for index, name in enumerate(names):
        assert engine.token_ids(name) == reference_output(list(range(index + 1, index + 9))).token_ids


def test_profiles_go_only_where_the_engine_was_told(controlled: MakeEngine) -> None:
    off, on = controlled(), controlled(profile_dir="/profiles")
    with pytest.raises(EngineGenerateError, match="without --profile-dir"):
        off.control.start_profile()
    with pytest.raises(EngineGenerateError, match="no profile"):
        on.control.stop_profile()
    on.control.start_profile()
    with pytest.raises(EngineGenerateError, match="already"):
        on.control.start_profile()
    on.control.stop_profile()
    assert on.memory.profiles == ["/profiles", "written"]
