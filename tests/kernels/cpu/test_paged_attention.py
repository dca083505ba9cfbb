import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from stoker_kernels.cpu.ops import CpuOps

BuildCase = Callable[..., Any]

MIXED_STEP = [(1, 0), (5, 0), (1, 30), (7, 20), (1, 31), (16, 16), (2, 1), (1, 200), (9, 124)]
# Groups of 1 to 16 query heads, some more than the 12, 3 and 2 rows that are computed together.
HEADS = [(1, 1), (4, 4), (6, 2), (5, 1), (9, 3), (7, 1), (12, 1), (13, 1), (16, 1), (32, 2)]
ROUNDING = {"rtol": 2.0**-7, "atol": 4e-3}
"""Of probabilities and of results to bfloat16."""

OPTIONS = st.fixed_dictionaries({}, optional={"soft_cap": st.sampled_from([0.5, 5.0, 50.0]), "window": st.one_of(st.integers(1, 40), st.integers(100, 300))})
SHAPES = {
    "requests": st.lists(
        st.tuples(st.one_of(st.just(1), st.integers(1, 20)), st.one_of(st.integers(0, 60), st.sampled_from([111, 112, 127, 128, 129, 255, 256, 300]))),
        min_size=1,
        max_size=4,
    ),
    "heads": st.sampled_from(HEADS),
    "head_dim": st.sampled_from([16, 32, 48, 64, 80, 96, 112, 128, 256]),
    "block_size": st.sampled_from([16, 32, 48]),
    "seed": st.integers(0, 1000),
}


def sinks_for(num_heads: int, seed: int) -> Tensor:
    return 3 * torch.randn(num_heads, generator=torch.Generator().manual_seed(seed))


def test_any_step_equals_the_reference(ops: CpuOps, on_random_shapes: Callable, build_attention_case: BuildCase) -> None:
    @on_random_shapes(**SHAPES)
    def check(**shape: Any) -> None:
        case = build_attention_case(**shape)
        torch.testing.assert_close(case.run(ops).float(), case.expected(), **ROUNDING)


def test_any_step_with_window_soft_cap_or_sinks_equals_the_reference(ops: CpuOps, on_random_shapes: Callable, build_attention_case: BuildCase) -> None:
    @on_random_shapes(options=OPTIONS, sinks_seed=st.one_of(st.none(), st.integers(0, 1000)), **SHAPES)
    def check(options: dict[str, Any], sinks_seed: int | None, **shape: Any) -> None:
        sinks = {} if sinks_seed is None else {"sinks": sinks_for(shape["heads"][0], sinks_seed)}
        case = build_attention_case(**shape, **options, **sinks)
        torch.testing.assert_close(case.run(ops).float(), case.expected(), **ROUNDING)


def test_garbage_in_slots_of_no_request_reaches_no_row(ops: CpuOps, build_attention_case: BuildCase) -> None:
    for garbage in (torch.nan, torch.inf, -torch.inf, 3e38):
        case = build_attention_case(MIXED_STEP)
        case.kv_cache[case.kv_cache.isnan()] = garbage
        torch.testing.assert_close(case.run(ops).float(), case.expected(), **ROUNDING)


@pytest.mark.parametrize("options", [{}, {"soft_cap": 5.0}], ids=["plain", "soft cap"])
@pytest.mark.parametrize("keys_and_values", [0, 1, slice(2)], ids=["keys", "values", "both"])
def test_a_nan_of_one_request_is_in_its_rows_and_reaches_no_other(
    ops: CpuOps, build_attention_case: BuildCase, keys_and_values: int | slice, options: dict[str, float]
) -> None:
    case = build_attention_case([(1, 200), (1, 3), (6, 10)], **options)
    clean = case.run(ops)
    for block in (0, 9, 12):
        poisoned = dataclasses.replace(case, kv_cache=case.kv_cache.clone())
        poisoned.kv_cache[case.block_table[0, block], 3:5, keys_and_values] = torch.nan
        result = poisoned.run(ops)
        assert result[0].isnan().all()
        assert torch.equal(result[1:], clean[1:])


def test_blocks_before_every_window_are_not_read(ops: CpuOps, build_attention_case: BuildCase) -> None:
    case = build_attention_case([(1, 300), (5, 250)], window=40)
    expected = case.run(ops)
    case.kv_cache[case.block_table[:, :10]] = torch.nan
    case.block_table[:, :10] = 10**8
    assert torch.equal(case.run(ops), expected)


@pytest.mark.parametrize("options", [{}, {"window": 150}, {"soft_cap": 20.0, "window": 3}], ids=str)
@pytest.mark.parametrize("heads", [(9, 3), (13, 1), (2, 2)], ids=str)
def test_a_row_has_the_same_bits_alone_in_any_chunk_and_beside_others(
    ops: CpuOps, build_attention_case: BuildCase, heads: tuple[int, int], options: dict[str, Any]
) -> None:
    whole = build_attention_case([(300, 0)], heads=heads, head_dim=32, sinks=sinks_for(heads[0], 5), **options)
    expected = whole.run(ops)
    decodes = [(position, position + 1) for position in (0, 1, 15, 16, 126, 127, 128, 129, 255, 256, 299)]
    chunks = [chunk for size in (2, 5, 37, 128, 131) for chunk in itertools.pairwise([*range(0, 300, size), 300])]
    for step in (*([chunk] for chunk in decodes), decodes + chunks):
        rows = torch.cat([whole.query[start:end] for start, end in step])
        starts, ends = np.cumsum([0, *(end - start for start, end in step)]), np.array([end for _, end in step])
        case = dataclasses.replace(whole, query=rows, query_start=starts, sequence_lengths=ends, block_table=whole.block_table.repeat(len(step), axis=0))
        for chunk, result in zip(step, case.run(ops).split(np.diff(starts).tolist()), strict=True):
            assert torch.equal(result, expected[slice(*chunk)]), chunk


def test_any_number_of_threads_gives_the_same_bits(ops: CpuOps, build_attention_case: BuildCase) -> None:
    case = build_attention_case(MIXED_STEP, heads=(9, 3), head_dim=48)
    results = []
    for num_threads in (1, 2, 3):
        ops.set_num_threads(num_threads)
        results.append(case.run(ops))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_rows_may_be_a_view_into_a_wider_tensor(ops: CpuOps, build_attention_case: BuildCase, randn: Callable[..., Tensor]) -> None:
    case = build_attention_case(MIXED_STEP)
    expected = case.run(ops)
    case.query = torch.cat((case.query, randn(9, len(case.query), 4, 16)), dim=1)[:, :6]
    assert torch.equal(case.run(ops), expected)


def test_scores_far_apart_give_the_largest_all_the_weight(ops: CpuOps, build_attention_case: BuildCase) -> None:
    case = build_attention_case([(1, 200), (40, 100)])
    case.query *= 1000
    torch.testing.assert_close(case.run(ops).float(), case.expected(), **ROUNDING)


def test_heads_that_do_not_lie_side_by_side_are_refused(ops: CpuOps, build_attention_case: BuildCase) -> None:
    case = build_attention_case([(3, 0)])
    case.query = case.query.transpose(0, 1).contiguous().transpose(0, 1)
    with pytest.raises(ValueError, match="the heads of a query row must lie side by side"):
        case.run(ops)
