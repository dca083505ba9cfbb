"""Sampling in C++ against the reference: the same tokens, not only the same distribution."""

import random
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from stoker_kernels import reference
from stoker_kernels.cpu.ops import CpuOps
from stoker_kernels.cpu.sampling import RowSettings, SampledRows

GOLDEN, MIX_1, MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def keys_of(rows: Sequence[RowSettings], positions: npt.NDArray[np.int64]) -> Tensor:
    mixed = np.array([row.request_key for row in rows], dtype=np.uint64) + (positions.astype(np.uint64) + np.uint64(1)) * GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * MIX_2
    return torch.from_numpy((mixed ^ (mixed >> np.uint64(31))).view(np.int64))


def expected(logits: Tensor, rows: Sequence[RowSettings], positions: npt.NDArray[np.int64]) -> tuple[list[int], Tensor]:
    top_k = [row.top_k for row in rows]
    token_ids, largest = reference.sample(
        logits,
        torch.tensor([row.temperature for row in rows]),
        torch.tensor(top_k, dtype=torch.int32),
        torch.tensor([row.top_p for row in rows], dtype=torch.float64),
        torch.tensor([row.min_p for row in rows]),
        keys_of(rows, positions),
    )
    return token_ids.tolist(), largest


def make_rows(number: int, vocab_size: int, seed: int) -> list[RowSettings]:
    rng = random.Random(seed)
    return [
        RowSettings(
            request_key=rng.getrandbits(64),
            temperature=rng.choice((0.0, 0.3, 1.0, 2.0)),
            top_k=top_k if (top_k := rng.choice((0, 0, 1, 3, 40, 900))) < vocab_size else 0,
            top_p=rng.choice((1.0, 0.999, 0.95, 0.5, 0.01)),
            min_p=rng.choice((0.0, 0.0, 0.05, 0.3, 1.0)),
        )
        for _ in range(number)
    ]


def make_logits(num_rows: int, vocab_size: int, seed: int) -> Tensor:
    """Flat or peaked, some with many ties, some with half of the tokens masked."""
    generator, kind = torch.Generator().manual_seed(seed), random.Random(seed)
    logits = torch.randn(num_rows, vocab_size, generator=generator) * kind.choice((0.1, 1.0, 3.0, 10.0))
    if kind.random() < 0.4:
        logits = (logits * 2).round() / 2
    if kind.random() < 0.4:
        logits[torch.rand(num_rows, vocab_size, generator=generator) < 0.5] = -torch.inf
        logits[:, -1] = 1.0
    return logits


def test_every_row_gets_the_token_of_the_reference(ops: CpuOps, on_random_shapes: Callable) -> None:
    @on_random_shapes(num_rows=st.integers(1, 9), vocab_size=st.integers(1, 3000), seed=st.integers(0, 10_000))
    def check(num_rows: int, vocab_size: int, seed: int) -> None:
        rows, logits = make_rows(num_rows, vocab_size, seed), make_logits(num_rows, vocab_size, seed)
        positions = np.random.default_rng(seed).integers(0, 5000, num_rows)
        sampled = SampledRows(ops.library, rows)
        assert sampled.sample(logits, vocab_size, positions) == 0
        token_ids, largest = expected(logits, rows, positions)
        assert sampled.token_ids.tolist() == token_ids
        assert sampled.largest.tolist() == largest.tolist()


def test_a_real_vocabulary_is_sampled_as_the_reference_does(ops: CpuOps) -> None:
    rows, logits, positions = make_rows(24, 49_152, 1), torch.randn(24, 49_152, generator=torch.Generator().manual_seed(1)) * 2, np.arange(24)
    sampled = SampledRows(ops.library, rows)
    sampled.sample(logits, 49_152, positions)
    assert sampled.token_ids.tolist() == expected(logits, rows, positions)[0]


def test_columns_past_the_vocabulary_do_not_exist(ops: CpuOps) -> None:
    rows, logits, positions = make_rows(8, 100, 2), make_logits(8, 100, 2), np.arange(8)
    wider = torch.cat((logits, torch.full((8, 30), 1e9)), dim=1)
    sampled = SampledRows(ops.library, rows)
    sampled.sample(wider, 100, positions)
    assert sampled.token_ids.tolist() == expected(logits, rows, positions)[0]
    assert sampled.find_largest(wider, 100).tolist() == logits.amax(dim=1).tolist()


@pytest.mark.parametrize(("value", "place"), [(torch.nan, 0), (torch.nan, 299), (torch.inf, 150)])
def test_a_row_whose_largest_is_not_finite_is_counted_and_costs_no_other_row_its_token(ops: CpuOps, value: float, place: int) -> None:
    rows, logits, positions = make_rows(6, 300, 3), make_logits(6, 300, 3), np.arange(6)
    sampled = SampledRows(ops.library, rows)
    sampled.sample(logits, 300, positions)
    healthy = sampled.token_ids.tolist()
    logits[2, place] = value
    logits[4] = -torch.inf
    assert sampled.sample(logits, 300, positions) == 2
    assert np.isnan(sampled.largest[2]) if np.isnan(value) else sampled.largest[2] == value
    assert sampled.largest[4] == -np.inf
    assert np.array_equal(sampled.find_largest(logits, 300), sampled.largest, equal_nan=True)
    assert [sampled.token_ids[row] for row in (0, 1, 3, 5)] == [healthy[row] for row in (0, 1, 3, 5)]


def test_a_row_gets_the_same_token_in_every_batch(ops: CpuOps) -> None:
    rows, logits, positions = make_rows(12, 2000, 4), make_logits(12, 2000, 4), np.arange(100, 112)
    together = SampledRows(ops.library, rows)
    together.sample(logits, 2000, positions)
    for row in range(12):
        alone = SampledRows(ops.library, [rows[row]])
        alone.sample(logits[row : row + 1], 2000, positions[row : row + 1])
        assert alone.token_ids[0] == together.token_ids[row]


def test_logits_of_another_shape_or_type_are_refused(ops: CpuOps) -> None:
    sampled = SampledRows(ops.library, make_rows(2, 50, 5))
    for logits in (torch.zeros(3, 50), torch.zeros(2, 49), torch.zeros(2, 50, dtype=torch.float64), torch.zeros(50, 2).t()):
        with pytest.raises(ValueError, match=r"logits must be float32 \[2, at least 50\]"):
            sampled.sample(logits, 50, np.arange(2))
