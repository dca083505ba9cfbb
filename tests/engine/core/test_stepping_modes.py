import random
from collections.abc import Callable
from typing import Any

import pytest

from stoker_engine.core.request import RequestStatus
from stoker_engine.sampling_params import RepetitionDetection

A = [1 + i % 27 for i in range(400)]
MAX_MODEL_LEN = 28
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "two batches": {"max_concurrent_batches": 2},
    "four batches": {"max_concurrent_batches": 4},
    "async": {"async_scheduling": True},
    "async, four batches": {"async_scheduling": True, "max_concurrent_batches": 4},
}
Asked = dict[str, tuple[list[int], dict[str, Any]]]


def random_settings(rng: random.Random) -> dict[str, Any]:
    """A pool of hardly more than one longest request keeps preemption frequent."""
    budget = rng.choice((5, 8, 30))
    return {
        "num_blocks": rng.randint(8, 13),
        "max_num_seqs": rng.randint(2, 5),
        "max_num_batched_tokens": budget,
        "enable_chunked_prefill": budget < MAX_MODEL_LEN or rng.random() < 0.5,
        "enable_prefix_caching": rng.random() < 0.7,
        "scheduling_policy": rng.choice(("fcfs", "priority")),
        "watermark": rng.choice((0.0, 0.0, 0.2)),
    }


def random_request(rng: random.Random) -> tuple[list[int], dict[str, Any]]:
    start = rng.choice((0, 0, 9))
    fields: dict[str, Any] = {"max_tokens": rng.randint(1, 16), "eos_token_ids": [] if rng.random() < 0.7 else [0]}
    if rng.random() < 0.5:
        fields["logprobs"] = 1
    if rng.random() < 0.3:
        fields |= {"stop_token_ids": [3, 5, 7], "min_tokens": rng.randint(0, fields["max_tokens"])}
    if rng.random() < 0.2:
        fields["repetition_detection"] = RepetitionDetection(max_size=2)
    return A[start : start + rng.randint(1, 14)], fields


def live_through(engine: Any, checks: Any, rng: random.Random) -> tuple[Asked, int]:
    """Requests arrive, are aborted, are preempted by a reset of the prefix cache and are served for 60 steps, then until all is done.

    Returns what was asked, and how many tokens came for requests that were preempted while a step with them was under way.
    """
    asked: Asked = {}
    num_late_tokens = 0
    for step in range(4000):
        if step < 60 and rng.random() < 0.5:
            request_id = f"r{len(asked):04}"
            asked[request_id] = prompt, fields = random_request(rng)
            engine.add(request_id, prompt, priority=rng.randrange(3), arrival_time=float(step), **fields)
        if asked and rng.random() < 0.05:
            engine.abort(rng.choice(list(asked)))
        if step < 60 and rng.random() < 0.03:
            engine.scheduler.preempt_all_requests()
            assert engine.scheduler.reset_prefix_cache()
        if step >= 60 and not engine.has_work():
            break
        before = {request.request_id: engine.table(request.request_id) for request in engine.state.running}
        waiting = {request: request.num_tokens for request in engine.state.waiting}
        scheduler_output = engine.step([rng.choice(list(asked))] if asked and rng.random() < 0.05 else [])
        if not engine.aborted_meanwhile:
            checks.step(engine, before, scheduler_output)
        checks.blocks(engine)
        checks.requests(engine)
        num_late_tokens += sum(request.status is RequestStatus.PREEMPTED and request.num_tokens > before for request, before in waiting.items())
    checks.idle(engine)
    return asked, num_late_tokens


def seen(result: Any) -> tuple[list[int], list[float], Any]:
    logprobs = [value for output in result.outputs if output.new_logprobs for row in output.new_logprobs.logprobs for value in row]
    return result.token_ids, logprobs, result.finish_reason


def check_history(engine_of: Callable[..., Any], checks: Any, reference_output: Callable[..., Any], seed: int, mode: dict[str, Any]) -> tuple[int, int]:
    """Every request gets what it would get alone, one step at a time. Returns how many were preempted, and how many tokens came after that."""
    rng = random.Random(seed)
    engine = engine_of(max_model_len=MAX_MODEL_LEN, **random_settings(rng), **mode)
    asked, num_late_tokens = live_through(engine, checks, rng)
    for request_id, (prompt, fields) in asked.items():
        token_ids, logprobs, finish_reason = seen(engine.results[request_id])
        expected = seen(reference_output(prompt, MAX_MODEL_LEN, **fields))
        if request_id in engine.aborted:
            assert finish_reason is None
            assert (token_ids, logprobs) == (expected[0][: len(token_ids)], expected[1][: len(logprobs)])
        else:
            assert (token_ids, logprobs, finish_reason) == expected
    return engine.scheduler.make_stats().num_preemptions, num_late_tokens


@pytest.mark.property("P21", "P40")
@pytest.mark.case("C044")
@pytest.mark.parametrize("mode", MODES)
def test_every_way_of_stepping_gives_a_request_its_own_tokens(
    engine_of: Callable[..., Any], checks: Any, reference_output: Callable[..., Any], mode: str
) -> None:
    histories = [check_history(engine_of, checks, reference_output, seed, MODES[mode]) for seed in range(25)]
    num_preemptions, num_late_tokens = (sum(counts) for counts in zip(*histories, strict=True))
    assert num_preemptions > 100
    assert (num_late_tokens == 0) if mode == "plain" else (num_late_tokens > 20)


@pytest.mark.stress
@pytest.mark.parametrize("mode", MODES)
def test_in_thousands_of_histories_every_way_of_stepping_gives_a_request_its_own_tokens(
    engine_of: Callable[..., Any], checks: Any, reference_output: Callable[..., Any], mode: str
) -> None:
    for seed in range(10_000, 12_000):
        check_history(engine_of, checks, reference_output, seed, MODES[mode])
