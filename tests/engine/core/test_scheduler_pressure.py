import random
from collections.abc import Callable
from typing import Any

import pytest

A = [1 + i % 27 for i in range(400)]


def live_through(engine: Any, checks: Any, rng: random.Random, num_steps: int) -> dict[str, tuple[list[int], dict[str, Any]]]:
    """Requests arrive, are aborted and are served for `num_steps` steps, then until all is done."""
    asked: dict[str, tuple[list[int], dict[str, Any]]] = {}
    for step in range(num_steps + 2000):
        if step < num_steps and rng.random() < 0.5:
            request_id = f"r{len(asked):04}"
            start = rng.choice((0, 0, 9))
            fields = {"max_tokens": rng.randint(1, 16), "eos_token_ids": [] if rng.random() < 0.7 else [0]}
            asked[request_id] = A[start : start + rng.randint(1, 14)], fields
            engine.add(request_id, asked[request_id][0], priority=rng.randrange(10), arrival_time=float(step), **fields)
        if asked and rng.random() < 0.05:
            engine.abort(rng.choice(list(asked)))
        if step >= num_steps and not engine.scheduler.has_requests():
            break
        before = {request.request_id: engine.table(request.request_id) for request in engine.state.running}
        checks.step(engine, before, engine.step())
        checks.blocks(engine)
        checks.requests(engine)
    return asked


def check_history(engine_of: Callable[..., Any], checks: Any, reference_output: Callable[..., Any], seed: int) -> int:
    """Returns how often a request was preempted."""
    rng = random.Random(seed)
    engine = engine_of(
        rng.randint(8, 13),
        max_model_len=28,
        max_num_seqs=rng.randint(2, 5),
        max_num_batched_tokens=rng.choice((5, 8, 30)),
        enable_prefix_caching=rng.random() < 0.7,
        scheduling_policy=rng.choice(("fcfs", "priority")),
    )
    asked = live_through(engine, checks, rng, num_steps=60)
    num_preemptions = engine.scheduler.make_stats().num_preemptions
    checks.idle(engine)
    for request_id, (prompt, fields) in asked.items():
        result, expected = engine.results[request_id], reference_output(prompt, 28, **fields)
        if request_id in engine.aborted:
            assert (result.token_ids, result.finish_reason) == (expected.token_ids[: len(result.token_ids)], None)
        else:
            assert (result.token_ids, result.finish_reason) == (expected.token_ids, expected.finish_reason)
    return num_preemptions


@pytest.mark.case("C040", "C043")
def test_under_constant_pressure_every_request_gets_its_own_tokens(engine_of: Callable[..., Any], checks: Any, reference_output: Callable[..., Any]) -> None:
    num_preemptions = sum(check_history(engine_of, checks, reference_output, seed) for seed in range(100))
    assert num_preemptions > 500


@pytest.mark.stress
def test_under_long_pressure_every_request_gets_its_own_tokens(engine_of: Callable[..., Any], checks: Any, reference_output: Callable[..., Any]) -> None:
    for seed in range(1000, 6000):
        check_history(engine_of, checks, reference_output, seed)


@pytest.mark.case("C043")
def test_requests_aborted_at_any_moment_leave_the_whole_pool_to_the_next(
    engine_of: Callable[..., Any], checks: Any, reference_output: Callable[..., Any]
) -> None:
    rng = random.Random(43)
    engine = engine_of(65, max_model_len=1024, block_size=16, max_num_seqs=8, max_num_batched_tokens=128)
    for number in range(300):
        prompt = [rng.randint(1, 27) for _ in range(rng.randint(5, 400))]
        children = [f"{child}_{number}" for child in range(rng.choice((1, 3)))]
        for child in children:
            engine.add(child, prompt, max_tokens=64)
        for _ in range(rng.randrange(6)):
            engine.step()
        if rng.random() < 0.5:
            engine.step(abort_meanwhile=children)
        engine.abort(*children)
    engine.run()
    assert engine.scheduler.make_stats().num_running == engine.scheduler.make_stats().num_waiting == 0
    checks.idle(engine)
    prompt = [rng.randint(1, 27) for _ in range(1000)]
    engine.add("whole pool", prompt, max_tokens=24, eos_token_ids=[])
    engine.run()
    assert engine.results["whole pool"].token_ids == reference_output(prompt, max_tokens=24, eos_token_ids=[]).token_ids


def check_target(engine: Any, reference_output: Callable[..., Any], written: list[int]) -> None:
    """A prompt of 70 tokens that begins with `written`, after whatever wrote that, gives what it gives cold."""
    target = [*written, *A[100:]][:70]
    engine.add("target", target, eos_token_ids=[])
    engine.run()
    result = engine.results["target"]
    assert result.token_ids == reference_output(target, eos_token_ids=[]).token_ids
    num_full_blocks = (len(written) - 1) // 8  # the token sampled last was not computed
    assert 8 <= result.outputs[0].prefill_stats.num_cached_tokens <= 8 * num_full_blocks


@pytest.mark.case("C040")
def test_a_prompt_after_a_stop_string_inside_a_block_is_served_as_if_cold(engine_of: Callable[..., Any], reference_output: Callable[..., Any]) -> None:
    engine = engine_of(16, block_size=8, max_num_batched_tokens=128)
    before = engine.add("before", A[:20], max_tokens=24, eos_token_ids=[])
    for _ in range(6):
        engine.step()
    # The frontend finds the stop string and aborts, by which time the core has gone on.
    engine.step(abort_meanwhile=["before"])
    check_target(engine, reference_output, before.sequence.token_ids)


@pytest.mark.case("C040")
def test_a_prompt_after_an_abort_is_served_as_if_cold(engine_of: Callable[..., Any], reference_output: Callable[..., Any]) -> None:
    engine = engine_of(16, block_size=8, max_num_batched_tokens=128)
    before = engine.add("before", A[:20], max_tokens=24, eos_token_ids=[])
    for _ in range(5):
        engine.step()
    engine.abort("before")
    check_target(engine, reference_output, before.sequence.token_ids)


@pytest.mark.case("C040")
def test_a_prompt_after_a_preemption_is_served_as_if_cold(engine_of: Callable[..., Any], reference_output: Callable[..., Any]) -> None:
    engine = engine_of(11, block_size=8, max_num_batched_tokens=128)
    engine.add("rival", A[200:230], max_tokens=30, eos_token_ids=[])
    before = engine.add("before", A[:20], max_tokens=24, eos_token_ids=[])
    while not before.num_preemptions:
        engine.step()
    written = before.sequence.token_ids.copy()
    engine.abort("rival", "before")
    check_target(engine, reference_output, written)
