from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from stoker_kernels import reference
from stoker_kernels.attention_plan import plan_attention
from stoker_kernels.torch_ops import kv_cache_shape, paged_attention


@dataclass
class AttentionCase:
    """A step over a cache whose unused slots are NaN; unused entries of the block table are out of range."""

    query: Tensor
    kv_cache: Tensor
    query_start: npt.NDArray[np.int64]
    sequence_lengths: npt.NDArray[np.int64]
    block_table: npt.NDArray[np.int32]

    @property
    def scale(self) -> float:
        return float(self.query.shape[-1] ** -0.5)

    def run(self) -> Tensor:
        plan = plan_attention(self.query_start, self.sequence_lengths, self.block_table, self.kv_cache)
        return paged_attention(self.query, self.kv_cache, plan, self.scale)

    def expected(self) -> Tensor:
        arrays = (torch.from_numpy(array) for array in (self.query_start, self.sequence_lengths, self.block_table))
        return reference.paged_attention(self.query, self.kv_cache, *arrays, self.scale)


def _build(
    requests: Sequence[tuple[int, int]],
    *,
    heads: tuple[int, int] = (6, 2),
    head_dim: int = 16,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> AttentionCase:
    """`requests` are (query length, tokens before); `heads` are (query heads, key-value heads)."""
    num_heads, num_kv_heads = heads
    random, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    query_lengths, lengths = np.array([query for query, _ in requests]), np.array([query + before for query, before in requests])
    blocks_of = -(-lengths // block_size)
    num_blocks = int(blocks_of.sum()) + 2
    free = iter(random.permutation(num_blocks))
    block_table = np.full((len(requests), int(blocks_of.max()) + 1), 10**6, dtype=np.int32)
    cache = torch.full(kv_cache_shape(num_blocks, block_size, num_kv_heads, head_dim), torch.nan, dtype=dtype)
    for request, (num_request_blocks, length) in enumerate(zip(blocks_of, lengths, strict=True)):
        block_table[request, :num_request_blocks] = [next(free) for _ in range(num_request_blocks)]
        for position in range(length):
            slot = cache[block_table[request, position // block_size], position % block_size]
            slot.copy_(torch.randn(slot.shape, generator=generator))
    query_start = np.concatenate(([0], np.cumsum(query_lengths)))
    query = torch.randn(int(query_start[-1]), num_heads, head_dim, generator=generator).to(dtype)
    return AttentionCase(query, cache, query_start, lengths, block_table)


@pytest.fixture(scope="session")
def build_attention_case() -> Callable[..., AttentionCase]:
    return _build
