import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker_kernels import attention_plan, reference
from stoker_kernels.attention_plan import plan_attention

BuildCase = Callable[..., Any]

MIXED_STEP = [(1, 0), (5, 0), (1, 30), (7, 20), (1, 31), (16, 16), (2, 1)]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    requests=st.lists(st.tuples(st.one_of(st.just(1), st.integers(1, 20)), st.integers(0, 60)), min_size=1, max_size=5),
    heads=st.sampled_from([(1, 1), (4, 4), (6, 2), (5, 1), (9, 3)]),
    head_dim=st.sampled_from([8, 16, 24]),
    block_size=st.sampled_from([8, 16, 32]),
    seed=st.integers(0, 1000),
)
def test_any_step_equals_the_reference(build_attention_case: BuildCase, requests: Sequence[tuple[int, int]], **shape: Any) -> None:
    case = build_attention_case(requests, **shape)
    torch.testing.assert_close(case.run(), case.expected(), rtol=1e-5, atol=1e-5)


def test_the_reference_is_softmax_attention_over_the_tokens_so_far() -> None:
    generator = torch.Generator().manual_seed(0)
    keys, values = torch.randn(2, 11, 2, 4, generator=generator).double()
    query = torch.randn(3, 6, 4, generator=generator).double()
    blocks = [4, 1]  # of 8 slots
    cache = torch.full((5, 8, 2, 2, 4), torch.nan, dtype=torch.float32)
    for position in range(11):
        cache[blocks[position // 8], position % 8, 0] = keys[position]
        cache[blocks[position // 8], position % 8, 1] = values[position]
    expected = torch.empty_like(query)
    for row, position in enumerate((8, 9, 10)):
        for head in range(6):
            exponentials = [math.exp(0.5 * float(query[row, head] @ keys[p, head // 3])) for p in range(position + 1)]
            expected[row, head] = sum(e * values[p, head // 3] for p, e in enumerate(exponentials)) / sum(exponentials)
    arrays = (torch.tensor([0, 3]), torch.tensor([11]), torch.tensor([blocks]))
    torch.testing.assert_close(reference.paged_attention(query.float(), cache, *arrays, 0.5), expected.float())


def test_a_mixed_step_in_bfloat16_equals_the_reference_but_for_rounding(build_attention_case: BuildCase) -> None:
    case = build_attention_case(MIXED_STEP, dtype=torch.bfloat16)
    torch.testing.assert_close(case.run(), case.expected(), rtol=1.6e-2, atol=1e-2)


def test_garbage_in_slots_of_no_request_reaches_no_row(build_attention_case: BuildCase) -> None:
    assert build_attention_case(MIXED_STEP).run().isfinite().all()


def test_a_nan_of_one_request_reaches_no_other(build_attention_case: BuildCase) -> None:
    case = build_attention_case([(1, 40), (1, 3), (6, 10)])
    clean = case.run()
    case.kv_cache[case.block_table[0, 0]] = torch.nan
    poisoned = case.run()
    assert poisoned[0].isnan().all()
    torch.testing.assert_close(poisoned[1:], clean[1:], rtol=0, atol=0)


def test_a_long_chunk_after_a_prefix_attends_in_pieces(build_attention_case: BuildCase) -> None:
    case = build_attention_case([(attention_plan.MAX_PIECE_ROWS + 30, 9), (40, 25)], heads=(1, 1), head_dim=8)
    torch.testing.assert_close(case.run(), case.expected(), rtol=1e-5, atol=1e-5)


def test_decodes_of_very_different_lengths_are_not_padded_to_the_longest(build_attention_case: BuildCase) -> None:
    lengths = [1500, 3, 100, 700, 1, 90]
    case = build_attention_case([(1, length - 1) for length in lengths], heads=(2, 1), head_dim=8)
    plan = plan_attention(case.query_start, case.sequence_lengths, case.block_table, case.kv_cache)
    slots_of_group = sorted(group.slots.numel() for group in plan.decode_groups)
    assert slots_of_group == [4 * 128, 704, 1504]
    torch.testing.assert_close(case.run(), case.expected(), rtol=1e-5, atol=1e-5)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(lengths=st.lists(st.integers(1, 700), min_size=1, max_size=20))
def test_no_decode_is_padded_to_more_than_twice_its_length_or_128(build_attention_case: BuildCase, lengths: list[int]) -> None:
    case = build_attention_case([(1, length - 1) for length in lengths], heads=(1, 1), head_dim=8)
    plan = plan_attention(case.query_start, case.sequence_lengths, case.block_table, case.kv_cache)
    for group in plan.decode_groups:
        rows = range(len(lengths)) if group.rows is None else group.rows.tolist()
        assert group.slots.numel() // group.num_rows <= max(2 * min(lengths[row] for row in rows), 128)


def test_a_group_gathers_no_more_than_its_bound(build_attention_case: BuildCase, monkeypatch: pytest.MonkeyPatch) -> None:
    case = build_attention_case([(1, 49)] * 5, heads=(2, 1), head_dim=8)
    monkeypatch.setitem(attention_plan.MAX_GROUP_BYTES, "cpu", 130 * 2 * 8 * 4)
    plan = plan_attention(case.query_start, case.sequence_lengths, case.block_table, case.kv_cache)
    assert [group.num_rows for group in plan.decode_groups] == [2, 2, 1]
    torch.testing.assert_close(case.run(), case.expected(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads", [(9, 3), pytest.param((4, 4), marks=pytest.mark.stress), pytest.param((8, 2), marks=pytest.mark.stress)])
def test_a_row_has_the_same_bits_alone_in_any_chunk_and_beside_others(build_attention_case: BuildCase, dtype: torch.dtype, heads: tuple[int, int]) -> None:
    whole = build_attention_case([(720, 0)], heads=heads, head_dim=64, dtype=dtype)
    expected = whole.run()

    def attend(chunks: list[tuple[int, int]]) -> list[torch.Tensor]:
        """The rows of each chunk of the sequence (first position, end), all in one step."""
        rows = torch.cat([whole.query[start:end] for start, end in chunks])
        starts, ends = np.cumsum([0, *(end - start for start, end in chunks)]), np.array([end for _, end in chunks])
        step = dataclasses.replace(whole, query=rows, query_start=starts, sequence_lengths=ends, block_table=whole.block_table.repeat(len(chunks), axis=0))
        return list(step.run().split(np.diff(starts).tolist()))

    edges = [0, 1, 30, 191, 192, 255, 383, 384, 511, 512, 600, 703, 704, 719]
    decodes = [(position, position + 1) for position in edges]
    chunks = [chunk for size in (2, 5, 37, 300, 513) for chunk in itertools.pairwise([*range(0, 720, size), 720])]
    for chunk, rows in zip(decodes + chunks, attend(decodes + chunks), strict=True):
        assert torch.equal(rows, expected[slice(*chunk)]), chunk
    for chunk in decodes:
        assert torch.equal(attend([chunk])[0], expected[slice(*chunk)]), chunk


def test_rows_may_be_a_view_into_a_wider_tensor(build_attention_case: BuildCase) -> None:
    case = build_attention_case(MIXED_STEP)
    expected = case.run()
    wide = torch.cat((case.query, torch.randn(len(case.query), 4, 16)), dim=1)
    case.query = wide[:, :6]
    torch.testing.assert_close(case.run(), expected, rtol=0, atol=0)
