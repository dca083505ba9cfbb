from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from stoker_kernels import reference
from stoker_kernels.triton import launch
from stoker_kernels.triton.paged_attention import paged_attention, plan_attention

FP8 = torch.float8_e4m3fn
DEFAULTS: dict[str, Any] = {
    "heads": (6, 2),
    "head_dim": 64,
    "block_size": 16,
    "dtypes": (torch.float32, torch.float32),
    "window": None,
    "soft_cap": None,
    "has_sinks": False,
    "seed": 0,
}
TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@dataclass
class Step:
    """A step over a cache whose unused slots are NaN; unused entries of the block table are out of range."""

    query: Tensor
    kv_cache: Tensor
    query_start: np.ndarray
    lengths: np.ndarray
    block_table: np.ndarray
    options: dict[str, Any]

    def run(self) -> Tensor:
        plan = plan_attention(self.query_start, self.lengths, self.block_table, self.kv_cache)
        return paged_attention(self.query, self.kv_cache, plan, self.query.shape[2] ** -0.5, **self.options)

    def check(self) -> None:
        arrays = [torch.from_numpy(array) for array in (self.query_start, self.lengths, self.block_table)]
        expected = reference.paged_attention(self.query, self.kv_cache, *arrays, self.query.shape[2] ** -0.5, **self.options)
        tolerance = TOLERANCES[self.query.dtype]
        torch.testing.assert_close(self.run(), expected, rtol=tolerance, atol=tolerance)


def build(requests: Sequence[tuple[int, int]], randn: Callable[..., Tensor], **changed: Any) -> Step:
    """`requests` are (query length, tokens before); `heads` are (query heads, key-value heads); `dtypes` those of queries and of the cache."""
    shape = DEFAULTS | changed
    (num_heads, num_kv_heads), (dtype, cache_dtype), seed = shape["heads"], shape["dtypes"], shape["seed"]
    head_dim, block_size = shape["head_dim"], shape["block_size"]
    query_lengths, lengths = np.array([query for query, _ in requests]), np.array([sum(request) for request in requests])
    blocks_of = -(-lengths // block_size)
    num_blocks = int(blocks_of.sum()) + 2
    free = iter(np.random.default_rng(seed).permutation(num_blocks))
    block_table = np.full((len(requests), int(blocks_of.max()) + 1), 10**6, dtype=np.int32)
    cache = randn(seed, num_blocks, block_size, 2, num_kv_heads, head_dim)
    is_used = torch.zeros(num_blocks, block_size, dtype=torch.bool)
    for request, length in enumerate(lengths):
        block_table[request, : blocks_of[request]] = [next(free) for _ in range(blocks_of[request])]
        for position in range(length):
            is_used[block_table[request, position // block_size], position % block_size] = True
    cache[~is_used] = torch.nan
    options: dict[str, Any] = {"window": shape["window"], "soft_cap": shape["soft_cap"]}
    if shape["has_sinks"]:
        options["sinks"] = randn(seed + 1, num_heads)
    if cache_dtype == FP8:
        options["kv_scale"] = randn(seed + 2, 2, num_kv_heads).abs() + 0.1
    query_start = np.concatenate(([0], np.cumsum(query_lengths)))
    query = randn(seed + 3, int(query_start[-1]), num_heads + 1, head_dim, dtype=dtype)[:, :num_heads]
    return Step(query, cache.to(cache_dtype), query_start, lengths, block_table, options)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles and splits so small that short requests have several."""
    defaults = launch.launch_table()["default"]
    monkeypatch.setitem(defaults, "decode_attention", {"*": {"TILE": 16, "SPLIT": 32}})
    monkeypatch.setitem(defaults, "prefill_attention", {"*": {"ROWS": 16, "TILE": 16}})


def shapes(*, query_lengths: st.SearchStrategy[int]) -> dict[str, st.SearchStrategy[Any]]:
    """Requests of up to 3 blocks of 8 to 32 tokens and one token more."""
    return {
        "requests": st.lists(st.tuples(query_lengths, st.sampled_from([0, 1, 7, 16, 31, 33, 48])), min_size=1, max_size=2),
        "heads": st.sampled_from([(1, 1), (3, 3), (6, 2), (5, 1), (9, 3), (4, 1)]),
        "head_dim": st.sampled_from([64, 80, 96, 128, 256]),
        "block_size": st.sampled_from([8, 16, 24, 32]),
        "dtypes": st.sampled_from(
            [(torch.float32,) * 2, (torch.float16,) * 2, (torch.bfloat16,) * 2, (torch.float16, FP8), (torch.bfloat16, FP8)],
        ),
        "window": st.sampled_from([None, None, 1, 5, 20]),
        "soft_cap": st.sampled_from([None, None, 1.5]),
        "has_sinks": st.booleans(),
        "seed": st.integers(0, 1000),
    }


@pytest.mark.usefixtures("small_tiles")
def test_decodes_equal_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(**shapes(query_lengths=st.just(1)))
    def check(requests: Sequence[tuple[int, int]], **shape: Any) -> None:
        build(requests, randn, **shape).check()


@pytest.mark.usefixtures("small_tiles")
def test_prefill_chunks_equal_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(**shapes(query_lengths=st.integers(2, 9)))
    def check(requests: Sequence[tuple[int, int]], **shape: Any) -> None:
        build(requests, randn, **shape).check()


@pytest.mark.usefixtures("small_tiles")
def test_mixed_steps_equal_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(**shapes(query_lengths=st.sampled_from([0, 1, 1, 2, 5])))
    def check(requests: Sequence[tuple[int, int]], **shape: Any) -> None:
        build([(1, 9), *requests], randn, **shape).check()


def test_the_tiles_of_a_gpu_give_the_same(randn: Callable[..., Tensor]) -> None:
    build([(1, 0), (1, 70), (140, 5), (3, 40)], randn, heads=(2, 1)).check()


def test_a_row_without_any_token_is_0(randn: Callable[..., Tensor]) -> None:
    step = build([(1, -1), (1, 3), (1, -1)], randn, has_sinks=True)
    attended = step.run()
    assert attended[0].eq(0).all() and attended[2].eq(0).all() and attended[1].ne(0).all()


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_row_has_the_same_bits_alone_and_beside_others(randn: Callable[..., Tensor], dtype: torch.dtype) -> None:
    step = build([(1, 70), (4, 30), (1, 3), (2, 0)], randn, dtypes=(dtype, dtype))
    together = step.run()
    for request in range(4):
        start, end = step.query_start[request : request + 2]
        alone = Step(step.query[start:end], step.kv_cache, np.array([0, end - start]), step.lengths[[request]], step.block_table[[request]], {})
        assert torch.equal(alone.run(), together[start:end])


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
@pytest.mark.usefixtures("small_tiles")
def test_a_nan_of_one_request_reaches_no_other(randn: Callable[..., Tensor]) -> None:
    step = build([(1, 40), (1, 3), (6, 10)], randn)
    clean = step.run()
    step.kv_cache[step.block_table[0, 0]] = torch.nan
    poisoned = step.run()
    assert poisoned[0].isnan().all()
    assert torch.equal(poisoned[1:], clean[1:])


def test_all_of_a_plan_on_the_device_is_one_tensor(randn: Callable[..., Tensor]) -> None:
    step = build([(1, 3), (300, 2), (2, 1)], randn, heads=(1, 1))
    plan = plan_attention(step.query_start, step.lengths, step.block_table, step.kv_cache)
    views = (plan.query_start, plan.sequence_lengths, plan.block_table, plan.decodes, plan.chunk_requests, plan.chunk_rows)
    assert {view.untyped_storage().data_ptr() for view in views} == {plan.buffer.untyped_storage().data_ptr()}
    assert [view.data_ptr() % 16 for view in views] == [plan.buffer.data_ptr() % 16] * len(views)
    assert (plan.decodes.tolist(), plan.chunk_requests.tolist(), plan.chunk_rows.tolist()) == ([0], [1, 1, 1, 2], [0, 128, 256, 0])
