import random
from collections.abc import Callable
from typing import Any

import pytest

A = [1 + i % 27 for i in range(60)]


def urgency(request: Any) -> tuple[Any, ...]:
    return request.wire.priority, request.wire.arrival_time, request.request_id


@pytest.mark.property("P30")
@pytest.mark.fault("E9")
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_the_first_of_the_running_gets_on_in_every_step_so_nobody_is_computed_again_for_ever(engine_of: Callable[..., Any], policy: str) -> None:
    rng = random.Random(3)
    engine = engine_of(9, max_model_len=28, max_num_seqs=5, scheduling_policy=policy)
    for number in range(60):
        start = rng.randrange(20)
        engine.add(f"r{number:02}", A[start : start + rng.randint(1, 14)], max_tokens=14, eos_token_ids=[], priority=rng.randrange(3), arrival_time=number)
    num_steps = 0
    while engine.has_work():
        running = engine.state.running
        first = (min(running, key=urgency) if policy == "priority" else running[0]) if running else None
        num_before = first.num_tokens if first else 0
        engine.step()
        assert first is None or first.num_tokens == num_before + 1
        num_steps += 1
    assert engine.scheduler.make_stats().num_preemptions > 50
    assert num_steps < 60 * 15


@pytest.mark.property("P31")
@pytest.mark.fault("F4")
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_small_requests_do_not_overtake_a_large_one_that_waits_for_room(engine_of: Callable[..., Any], policy: str) -> None:
    engine = engine_of(9, scheduling_policy=policy)
    engine.add("running", A[:8], max_tokens=12, eos_token_ids=[], arrival_time=0.0)
    engine.step()
    engine.add("large", A[10:38], max_tokens=2, eos_token_ids=[], arrival_time=1.0)
    for number in range(3):
        engine.add(f"small {number}", [number + 1], max_tokens=2, eos_token_ids=[], arrival_time=2.0 + number)
    while "large" not in (scheduled := engine.step().num_scheduled_tokens):
        assert list(scheduled) == ["running"]
    assert engine.results["running"].finish_reason is not None


@pytest.mark.fault("F3")
def test_a_running_request_keeps_its_seat_from_a_more_urgent_one(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64, max_num_seqs=1, scheduling_policy="priority")
    engine.add("running", A[:8], max_tokens=4, eos_token_ids=[], priority=5)
    engine.step()
    engine.add("urgent", A[10:18], max_tokens=4, eos_token_ids=[], priority=0)
    for _ in range(3):
        assert list(engine.step().num_scheduled_tokens) == ["running"]
    assert list(engine.step().num_scheduled_tokens) == ["urgent"]
    assert engine.scheduler.make_stats().num_preemptions == 0
