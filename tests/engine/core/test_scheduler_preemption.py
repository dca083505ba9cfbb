from collections.abc import Callable
from typing import Any

import pytest

from stoker_engine.core.request import RequestStatus

A = [1 + i % 27 for i in range(40)]


@pytest.mark.fault("C17")
def test_the_least_urgent_gives_way_even_when_it_is_scheduled_already(engine_of: Callable[..., Any], reference_output: Callable[..., Any]) -> None:
    engine = engine_of(5, max_num_batched_tokens=16, scheduling_policy="priority")
    low = engine.add("low", A[:6], priority=5, eos_token_ids=[])
    engine.step()
    engine.add("high", A[6:14], priority=0, eos_token_ids=[])
    assert engine.step().num_scheduled_tokens == {"low": 1, "high": 8}
    step = engine.step()
    assert step.num_scheduled_tokens == {"high": 1}
    assert step.cached_requests.request_ids == ["high"]
    assert (step.cached_requests.num_computed_tokens, len(step.cached_requests.new_block_ids)) == ([8], 1)
    assert (step.preempted_request_ids, step.total_num_scheduled_tokens) == (["low"], 1)
    assert low.status is RequestStatus.PREEMPTED
    engine.run()
    assert engine.results["low"].token_ids == reference_output(A[:6], eos_token_ids=[]).token_ids
    assert engine.results["high"].token_ids == reference_output(A[6:14], eos_token_ids=[]).token_ids


@pytest.mark.property("P24")
@pytest.mark.fault("C16")
def test_a_victim_before_the_cursor_makes_nobody_lose_a_turn(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(7, max_num_batched_tokens=32, scheduling_policy="priority")
    engine.add("a", A[:5], priority=9, eos_token_ids=[])
    engine.step()
    engine.add("b", A[5:13], priority=1, eos_token_ids=[])
    engine.add("c", A[13:19], priority=2, eos_token_ids=[])
    assert engine.step().num_scheduled_tokens == {"a": 1, "b": 8, "c": 6}
    step = engine.step()
    assert step.preempted_request_ids == ["a"]
    assert step.num_scheduled_tokens == {"b": 1, "c": 1}


def test_the_least_urgent_gives_itself_up_and_those_after_it_go_on(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(6, max_num_batched_tokens=32, scheduling_policy="priority")
    engine.add("low", A[:7], priority=5, eos_token_ids=[])
    engine.step()
    engine.add("high", A[7:18], priority=0, eos_token_ids=[])
    assert engine.step().num_scheduled_tokens == {"low": 1, "high": 11}
    step = engine.step()
    assert step.preempted_request_ids == ["low"]
    assert step.num_scheduled_tokens == {"high": 1}


@pytest.mark.property("P23")
def test_nobody_is_admitted_in_a_step_that_preempts(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(5, max_num_batched_tokens=16)
    engine.add("a", A[:7], eos_token_ids=[])
    engine.add("b", A[7:14], eos_token_ids=[])
    engine.step()
    engine.step()
    engine.add("tiny", [3])
    step = engine.step()
    assert step.preempted_request_ids == ["b"]
    assert step.new_requests == []
    assert [request.request_id for request in engine.state.waiting] == ["b", "tiny"]


def test_room_made_by_a_preemption_is_for_running_requests_first(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(6, max_num_batched_tokens=32, scheduling_policy="priority")
    engine.add("low", A[:9], priority=5, eos_token_ids=[])
    engine.step()
    engine.add("high", A[9:17], priority=1, eos_token_ids=[])
    engine.step()
    engine.add("urgent", [3], priority=0)
    step = engine.step()
    assert step.preempted_request_ids == ["low"]
    assert engine.pool.num_free_blocks == 2
    assert step.num_scheduled_tokens == {"high": 1}
    assert list(engine.step().num_scheduled_tokens) == ["high", "urgent"]


@pytest.mark.fault("F2")
def test_several_victims_of_one_step_come_back_in_their_order(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(7, max_num_batched_tokens=64)
    for request_id, prompt in (("a", A[:8]), ("b", A[8:16]), ("c", A[16:19]), ("d", A[19:22])):
        engine.add(request_id, prompt, eos_token_ids=[])
    engine.step()
    step = engine.step()
    assert step.num_scheduled_tokens == {"a": 1, "b": 1}
    assert step.preempted_request_ids == ["d", "c"]
    assert [request.request_id for request in engine.state.waiting] == ["c", "d"]
    assert engine.scheduler.make_stats().num_preemptions == 2


@pytest.mark.property("P31")
def test_a_more_urgent_request_is_admitted_first(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64, max_num_seqs=1, scheduling_policy="priority")
    for request_id, priority, arrival_time in (("a", 3, 1.0), ("b", 1, 3.0), ("c", 1, 2.0)):
        engine.add(request_id, A[:4], priority=priority, arrival_time=arrival_time, max_tokens=1)
    order = []
    while engine.scheduler.has_requests():
        order += list(engine.step().num_scheduled_tokens)
    assert order == ["c", "b", "a"]


@pytest.mark.property("P16")
def test_requests_that_skip_the_cache_compute_all_and_still_fill_it(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64)
    engine.add("first", A[:9], max_tokens=1)
    engine.run()
    for request_id, fields in (("skips", {"skip_reading_prefix_cache": True}), ("logprobs", {"prompt_logprobs": 0})):
        engine.add(request_id, A[:9], max_tokens=1, **fields)
        assert engine.step().num_scheduled_tokens == {request_id: 9}
        engine.run()
    assert engine.scheduler.make_stats().prefix_cache_queries == 9
    engine = engine_of(64)
    engine.add("writes", A[:9], max_tokens=1, skip_reading_prefix_cache=True)
    engine.run()
    engine.add("reads", A[:9], max_tokens=1)
    assert engine.step().num_scheduled_tokens == {"reads": 1}


def test_equal_prompts_that_arrive_together_are_computed_once(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64)
    for number in range(3):
        engine.add(f"{number}_parent", A[:9], eos_token_ids=[])
    assert engine.step().num_scheduled_tokens == {"0_parent": 9, "1_parent": 1, "2_parent": 1}
    engine.run()
    assert len({tuple(result.token_ids) for result in engine.results.values()}) == 1


def test_without_prefix_caching_nothing_is_shared(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64, enable_prefix_caching=False)
    engine.add("a", A[:9], max_tokens=9, eos_token_ids=[])
    engine.run()
    engine.add("b", A[:9])
    assert engine.step().num_scheduled_tokens == {"b": 9}
    assert engine.pool.cached_blocks == {}
    assert engine.scheduler.make_stats().prefix_cache_queries == 0
