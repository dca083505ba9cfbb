"""The C++ ops of every instruction set that this processor has, each in its own library, and cases for them in random shapes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from stoker_kernels import reference
from stoker_kernels.cpu.library import available_instruction_sets
from stoker_kernels.cpu.ops import CpuOps

EXAMPLES = 12
STRESS_EXAMPLES = 350
"""For each instruction set: over a thousand where there are three."""


INSTRUCTION_SETS = available_instruction_sets()


@pytest.fixture(params=INSTRUCTION_SETS)
def ops(request: pytest.FixtureRequest) -> CpuOps:
    """On two threads, as many as the smallest machine of the tests has cores."""
    ops = CpuOps(request.param)
    ops.set_num_threads(2)
    return ops


@pytest.fixture(params=[pytest.param(EXAMPLES, id=str(EXAMPLES)), pytest.param(STRESS_EXAMPLES, id=str(STRESS_EXAMPLES), marks=pytest.mark.stress)])
def on_random_shapes(request: pytest.FixtureRequest) -> Callable[..., Callable[[Callable[..., None]], None]]:
    """`@on_random_shapes(size=st.integers(1, 9))` above a check runs it on 12 drawn shapes, the same each time; on 350 among the stress tests."""

    def draw(**strategies: Any) -> Callable[[Callable[..., None]], None]:
        def run(check: Callable[..., None]) -> None:
            settings(max_examples=request.param, deadline=None, derandomize=True, database=None)(given(**strategies)(check))()

        return run

    return draw


def _randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


@pytest.fixture(scope="session")
def randn() -> Callable[..., Tensor]:
    """`randn(seed, *shape)`: the same bfloat16 numbers for the same arguments."""
    return _randn


def _to_cpu_layout(kv_cache: Tensor) -> Tensor:
    """The reference's [blocks, block size, 2, kv heads, D] as the C++ ops lay it out."""
    num_blocks, block_size, _, num_kv_heads, head_dim = kv_cache.shape
    # [2, blocks, kv heads, groups, 16, D]
    groups = kv_cache.view(num_blocks, block_size // 16, 16, 2, num_kv_heads, head_dim).permute(3, 0, 4, 1, 2, 5)
    keys = groups[0].unflatten(-1, (-1, 2)).transpose(3, 4).flatten(3)
    values = groups[1].unflatten(3, (8, 2)).transpose(4, 5).flatten(3)
    return torch.stack((keys, values), dim=3).contiguous()


@pytest.fixture(scope="session")
def to_cpu_layout() -> Callable[[Tensor], Tensor]:
    return _to_cpu_layout


@dataclass
class AttentionCase:
    """A step over the reference's cache, whose slots of no token are NaN; entries of the block table past a request's blocks are out of range."""

    query: Tensor
    kv_cache: Tensor
    query_start: npt.NDArray[np.int64]
    sequence_lengths: npt.NDArray[np.int64]
    block_table: npt.NDArray[np.int32]
    options: dict[str, Any]
    """soft_cap, window and sinks, for both implementations"""

    @property
    def scale(self) -> float:
        return float(self.query.shape[-1] ** -0.5)

    def run(self, ops: CpuOps) -> Tensor:
        kv_cache = _to_cpu_layout(self.kv_cache)
        plan = ops.plan_paged_attention(self.query_start, self.sequence_lengths, self.block_table, kv_cache)
        return ops.paged_attention(self.query, kv_cache, plan, self.scale, **self.options)

    def expected(self) -> Tensor:
        """In float32."""
        arrays = (torch.from_numpy(array) for array in (self.query_start, self.sequence_lengths, self.block_table))
        return reference.paged_attention(self.query.float(), self.kv_cache.float(), *arrays, self.scale, **self.options)


def _build_attention_case(
    requests: Sequence[tuple[int, int]], *, heads: tuple[int, int] = (6, 2), head_dim: int = 16, block_size: int = 16, seed: int = 0, **options: Any
) -> AttentionCase:
    """`requests` are (query length, tokens before); `heads` are (query heads, key-value heads)."""
    num_heads, num_kv_heads = heads
    query_lengths, lengths = np.array([query for query, _ in requests]), np.array([query + before for query, before in requests])
    blocks_of = -(-lengths // block_size)
    num_blocks = int(blocks_of.sum()) + 2
    free = iter(np.random.default_rng(seed).permutation(num_blocks))
    block_table = np.full((len(requests), int(blocks_of.max()) + 1), 10**8, dtype=np.int32)
    kv_cache = _randn(seed + 1, num_blocks, block_size, 2, num_kv_heads, head_dim)
    is_used = torch.zeros(num_blocks, block_size, dtype=torch.bool)
    for request, (count, length) in enumerate(zip(blocks_of, lengths, strict=True)):
        block_table[request, :count] = [next(free) for _ in range(count)]
        positions = np.arange(length)
        is_used[block_table[request, positions // block_size], positions % block_size] = True
    kv_cache[~is_used] = torch.nan
    query_start = np.concatenate(([0], np.cumsum(query_lengths)))
    query = _randn(seed + 2, int(query_start[-1]), num_heads, head_dim)
    return AttentionCase(query, kv_cache, query_start, lengths, block_table, options)


@pytest.fixture(scope="session")
def build_attention_case() -> Callable[..., AttentionCase]:
    return _build_attention_case
