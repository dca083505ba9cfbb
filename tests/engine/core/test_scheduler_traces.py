from collections.abc import Callable
from typing import Any

import pytest

from stoker_engine.finish_reason import FinishReason

A = [1 + i % 27 for i in range(40)]
"""Token ids in which no block of four comes twice."""


def test_prompts_are_split_over_steps_by_one_token_budget(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(16, max_num_batched_tokens=8, max_num_seqs=4)
    engine.add("R1", A[:10], eos_token_ids=[])
    engine.add("R2", A[10:16], eos_token_ids=[])
    rows = []
    for _ in range(5):
        scheduled = engine.step().num_scheduled_tokens
        computed = [engine.state.requests[request_id].num_computed_tokens for request_id in ("R1", "R2")]
        num_blocks = [len(engine.table(request_id)) for request_id in ("R1", "R2") if request_id in engine.worker.requests]
        num_sampled = [len(engine.results[request_id].token_ids) for request_id in ("R1", "R2")]
        rows.append((scheduled, computed, num_blocks, num_sampled))
    assert rows == [
        ({"R1": 8}, [8, 0], [2], [0, 0]),
        ({"R1": 2, "R2": 6}, [10, 6], [3, 2], [1, 1]),
        ({"R1": 1, "R2": 1}, [11, 7], [3, 2], [2, 2]),
        ({"R1": 1, "R2": 1}, [12, 8], [3, 2], [3, 3]),
        ({"R1": 1, "R2": 1}, [13, 9], [4, 3], [4, 4]),
    ]


@pytest.mark.property("P14")
@pytest.mark.parametrize(
    ("prompt", "salt", "num_cached_tokens"),
    [
        (A[:9], None, 8),
        (A[:8], None, 4),
        (A[:4], None, 0),
        ([28, *A[1:9]], None, 0),
        (A[:9], "tenant", 0),
    ],
)
def test_a_lookup_counts_full_blocks_of_the_same_prefix_short_of_the_last_token(
    engine_of: Callable[..., Any], prompt: list[int], salt: str | None, num_cached_tokens: int
) -> None:
    engine = engine_of(16)
    engine.add("first", A[:10], max_tokens=1)
    engine.run()
    engine.add("second", prompt, cache_salt=salt)
    assert engine.step().num_scheduled_tokens == {"second": len(prompt) - num_cached_tokens}
    assert engine.results["second"].outputs[0].prefill_stats.num_cached_tokens == num_cached_tokens


def test_the_last_of_the_running_gives_way_and_comes_back_from_its_cached_prefix(engine_of: Callable[..., Any], reference_output: Callable[..., Any]) -> None:
    engine = engine_of(5, max_num_batched_tokens=16)
    engine.add("R1", A[:7], max_tokens=4, eos_token_ids=[])
    engine.add("R2", A[7:14], max_tokens=4, eos_token_ids=[])

    assert engine.step().num_scheduled_tokens == {"R1": 7, "R2": 7}
    (p, q), (r, s) = engine.table("R1"), engine.table("R2")
    assert engine.pool.num_free_blocks == 0

    assert engine.step().num_scheduled_tokens == {"R1": 1, "R2": 1}
    assert all(engine.pool.blocks[block_id].block_hash is not None for block_id in (p, q, r, s))

    third = engine.step()
    assert third.num_scheduled_tokens == {"R1": 1}
    assert third.preempted_request_ids == ["R2"]
    assert engine.table("R1") == [p, q, s]
    assert [block.block_id for block in engine.pool.free_queue.blocks()] == [r]
    preempted = engine.state.requests["R2"]
    assert (preempted.num_computed_tokens, preempted.num_tokens) == (0, 9)

    assert engine.step().num_scheduled_tokens == {"R1": 1}
    assert engine.results["R1"].finish_reason is not None

    fifth = engine.step()
    assert fifth.num_scheduled_tokens == {"R2": 5}
    (resumed,) = fifth.new_requests
    assert (resumed.num_computed_tokens, resumed.num_prompt_tokens, len(resumed.token_ids)) == (4, 7, 9)
    assert len(resumed.block_ids) == 3
    assert resumed.block_ids[0] == r

    engine.run()
    for request_id, prompt in (("R1", A[:7]), ("R2", A[7:14])):
        assert engine.results[request_id].token_ids == reference_output(prompt, max_tokens=4, eos_token_ids=[]).token_ids


def test_a_watermark_keeps_blocks_free_for_what_runs_already(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(100, max_num_batched_tokens=1000, watermark=0.1, enable_prefix_caching=False)
    runs = engine.add("runs", [1] * 4 * 74 + [1] * 3, eos_token_ids=[])
    engine.step()
    assert engine.pool.num_free_blocks == 24
    engine.add("needs 15", [2] * 60, max_tokens=1)
    assert engine.step().num_scheduled_tokens == {"runs": 1}
    engine.abort("needs 15")
    engine.add("needs 13", [2] * 52, max_tokens=1)
    assert "needs 13" in engine.step().num_scheduled_tokens
    assert engine.state.kv_cache_manager.allocate_slots(runs, 16 * 4) is not None
    engine.abort("runs")
    engine.add("needs 95", [3] * 4 * 95, max_tokens=1)
    assert engine.step().num_scheduled_tokens == {"needs 95": 380}


@pytest.mark.property("P30")
@pytest.mark.fault("C3")
@pytest.mark.parametrize("watermark", [0.0, 0.5, 0.99])
def test_an_idle_engine_admits_or_fails_the_head_of_its_queue(engine_of: Callable[..., Any], watermark: float) -> None:
    engine = engine_of(9, watermark=watermark)
    for length in range(1, 40):
        engine.add(f"prompt of {length}", [1 + length % 20] * length, max_tokens=40, eos_token_ids=[])
    engine.run()
    reasons = [engine.results[f"prompt of {length}"].finish_reason for length in range(1, 40)]
    assert reasons == [FinishReason.LENGTH] * 32 + [FinishReason.ERROR] * 7
