from collections.abc import Callable
from typing import Any

import pytest

from stoker_engine.finish_reason import FinishReason

A = [1 + i % 27 for i in range(60)]
"""Token ids in which no block of four comes twice."""
TWO_BATCHES = {"max_concurrent_batches": 2}
ASYNC = {"async_scheduling": True}


def counts(request: Any) -> tuple[int, int, int]:
    return request.num_computed_tokens, request.num_tokens, request.num_output_placeholders


@pytest.mark.property("P21", "P42")
def test_a_request_is_scheduled_for_tokens_yet_to_be_sampled_up_to_its_limit(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(16, **ASYNC)
    request = engine.add("a", A[:5], max_tokens=3, eos_token_ids=[])
    scheduler, worker = engine.scheduler, engine.worker
    scheduled, results, table = [], [], []

    def schedule() -> None:
        scheduler_output = scheduler.schedule()
        scheduled.append(scheduler_output)
        worker.forward(scheduler_output)
        results.append(worker.sample(None))
        table.append((scheduler_output.num_scheduled_tokens.get("a", 0), *counts(request)))

    def take_result() -> None:
        outputs = scheduler.update_from_output(scheduled.pop(0), results.pop(0))
        table.append((outputs[0][0].finish_reason, *counts(request)))

    for action in (schedule, schedule, take_result, schedule, take_result, schedule, take_result):
        action()
    assert table == [
        (5, 5, 5, 1),
        (1, 6, 5, 2),
        (None, 6, 6, 1),
        (1, 7, 6, 2),
        (None, 7, 7, 1),
        (0, 7, 7, 1),
        (FinishReason.LENGTH, 7, 8, 0),
    ]


def test_a_queue_of_batches_without_asynchronous_scheduling_waits_for_a_requests_token(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(16, max_num_batched_tokens=6, **TWO_BATCHES)
    engine.add("long", A[:17], max_tokens=2, eos_token_ids=[])
    engine.add("short", A[20:23], max_tokens=2, eos_token_ids=[])
    steps = []
    while engine.has_work():
        scheduler_output = engine.step()
        if scheduler_output.num_scheduled_tokens:
            steps.append((scheduler_output.num_scheduled_tokens, len(engine.results["long"].token_ids), len(engine.results["short"].token_ids)))
    assert steps == [({"long": 6}, 0, 0), ({"long": 6}, 0, 0), ({"long": 5, "short": 1}, 0, 0), ({"short": 2}, 1, 0), ({"long": 1}, 1, 1), ({"short": 1}, 2, 1)]


@pytest.mark.property("P21", "P29")
@pytest.mark.parametrize("mode", [TWO_BATCHES, ASYNC])
def test_a_preempted_request_comes_back_only_with_the_tokens_that_were_under_way(engine_of: Callable[..., Any], mode: dict[str, Any]) -> None:
    engine = engine_of(32, **mode)
    request = engine.add("a", A[:6], max_tokens=8, eos_token_ids=[])
    engine.step()
    assert request.num_output_placeholders == 1
    engine.scheduler.preempt_all_requests()
    assert engine.scheduler.reset_prefix_cache()
    while request.num_output_placeholders:
        assert "a" not in engine.step().num_scheduled_tokens
    assert len(engine.results["a"].token_ids) == 1
    (resumed,) = next(step for step in iter(engine.step, None) if step.new_requests).new_requests
    assert resumed.token_ids == [*A[:6], *engine.results["a"].token_ids]


def test_a_request_that_ends_among_the_preempted_leaves_the_queue(engine_of: Callable[..., Any], checks: Any) -> None:
    engine = engine_of(32, **ASYNC)
    engine.add("a", A[:6], max_tokens=1)
    engine.step()
    engine.scheduler.preempt_all_requests()
    engine.run()
    assert engine.results["a"].finish_reason is FinishReason.LENGTH
    checks.idle(engine)


@pytest.mark.case("C061")
def test_a_request_that_fails_gets_nothing_of_the_steps_it_is_in_besides(engine_of: Callable[..., Any], checks: Any) -> None:
    engine = engine_of(32, max_num_seqs=4, **ASYNC)
    engine.worker.failing.add("a")
    engine.add("a", A[:6], eos_token_ids=[])
    engine.add("b", A[10:16], max_tokens=3, eos_token_ids=[])
    engine.run()
    (only,) = engine.results["a"].outputs
    assert (only.finish_reason, only.new_token_ids) == (FinishReason.ERROR, [])
    assert len(engine.results["b"].token_ids) == 3
    assert engine.scheduler.make_stats().num_nan_logits == 1
    checks.idle(engine)


def test_the_blocks_of_a_request_that_failed_after_its_preemption_are_not_shared(engine_of: Callable[..., Any], reference_output: Callable[..., Any]) -> None:
    engine = engine_of(32, **ASYNC)
    engine.worker.failing.add("a")
    engine.add("a", A[:9], eos_token_ids=[])
    engine.step()
    engine.scheduler.preempt_all_requests()
    engine.run()
    assert engine.results["a"].finish_reason is FinishReason.ERROR
    assert engine.pool.cached_blocks == {}
    engine.add("b", A[:9], eos_token_ids=[])
    engine.run()
    assert engine.results["b"].token_ids == reference_output(A[:9], eos_token_ids=[]).token_ids


@pytest.mark.property("P37")
@pytest.mark.fault("D1")
def test_an_id_that_came_back_gets_nothing_of_the_steps_under_way(engine_of: Callable[..., Any], reference_output: Callable[..., Any]) -> None:
    engine = engine_of(32, **ASYNC)
    engine.add("a", A[:6], eos_token_ids=[])
    engine.step()
    engine.step()
    engine.abort("a")
    engine.aborted.clear()
    engine.add("a", A[10:15], max_tokens=5, eos_token_ids=[])
    told = []
    while engine.has_work():
        scheduler_output = engine.step()
        if scheduler_output.finished_request_ids:
            told.append("a" in scheduler_output.num_scheduled_tokens)
    assert told == [False, False]
    assert engine.results["a"].token_ids == reference_output(A[10:15], max_tokens=5, eos_token_ids=[]).token_ids


def test_blocks_are_cached_once_their_tokens_are_known(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(32, **ASYNC)
    engine.add("first", A[:6], max_tokens=4, eos_token_ids=[])
    engine.run()
    tokens = [*A[:6], *engine.results["first"].token_ids]
    engine.add("second", tokens, max_tokens=1)
    engine.run()
    assert engine.results["second"].outputs[0].prefill_stats.num_cached_tokens == 8


def test_more_batches_than_steps_to_take_wait_for_the_oldest_result(engine_of: Callable[..., Any], reference_output: Callable[..., Any]) -> None:
    engine = engine_of(32, max_concurrent_batches=8)
    engine.add("a", A[:6], max_tokens=5, eos_token_ids=[])
    num_calls = 0
    while engine.has_work():
        engine.step()
        num_calls += 1
    assert num_calls <= 2 * 5 + 2
    assert engine.results["a"].token_ids == reference_output(A[:6], max_tokens=5, eos_token_ids=[]).token_ids


def test_results_out_of_their_order_are_refused(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(32, **ASYNC)
    engine.add("a", A[:6])
    first, second = engine.scheduler.schedule(), engine.scheduler.schedule()
    engine.worker.forward(first)
    output = engine.worker.sample(None)
    with pytest.raises(RuntimeError, match="in the order of their steps"):
        engine.scheduler.update_from_output(second, output)
    assert first.num_scheduled_tokens == {"a": 6}


@pytest.mark.parametrize("mode", [{}, TWO_BATCHES, ASYNC, {**ASYNC, "max_concurrent_batches": 4}])
def test_the_statistics_tell_the_size_of_the_step_whose_result_came(engine_of: Callable[..., Any], mode: dict[str, Any]) -> None:
    engine = engine_of(16, max_num_batched_tokens=8, **mode)
    engine.add("a", A[:13], max_tokens=3, eos_token_ids=[])
    sizes = []
    while engine.has_work():
        num_in_flight = engine.stepping.num_in_flight
        engine.step()
        if engine.stepping.num_in_flight <= num_in_flight:
            sizes.append(engine.scheduler.make_stats().num_batched_tokens)
    assert [size for size in sizes if size] == [8, 5, 1, 1]
