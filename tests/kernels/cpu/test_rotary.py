from collections.abc import Callable

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from stoker_kernels import reference
from stoker_kernels.cpu.ops import CpuOps

HEAD_DIMS = [16, 32, 48, 64, 80, 96, 128, 256]
NUM_BLOCKS = 4


def test_rotary_and_cache_equals_the_reference(
    ops: CpuOps, on_random_shapes: Callable, randn: Callable[..., Tensor], to_cpu_layout: Callable[[Tensor], Tensor]
) -> None:
    @on_random_shapes(
        num_tokens=st.integers(1, 40),
        heads=st.sampled_from([(1, 1), (9, 3), (5, 1), (8, 2), (3, 3), (16, 1)]),
        head_dim=st.sampled_from(HEAD_DIMS),
        rotated_share=st.sampled_from([1.0, 1.0, 0.5, 0.25]),
        block_size=st.sampled_from([16, 32, 48]),
        seed=st.integers(0, 1000),
    )
    def check(num_tokens: int, heads: tuple[int, int], head_dim: int, rotated_share: float, block_size: int, seed: int) -> None:
        num_heads, num_kv_heads = heads
        qkv, cos_sin = randn(seed, num_tokens, num_heads + 2 * num_kv_heads, head_dim), randn(seed + 1, num_tokens, 2, int(head_dim * rotated_share) // 2)
        slots = torch.randperm(NUM_BLOCKS * block_size, generator=torch.Generator().manual_seed(seed))[:num_tokens]
        before = randn(seed + 2, NUM_BLOCKS, block_size, 2, num_kv_heads, head_dim)
        expected_qkv, expected_cache, kv_cache = qkv.clone(), before.clone(), to_cpu_layout(before)
        assert kv_cache.shape == ops.kv_cache_shape(NUM_BLOCKS, block_size, num_kv_heads, head_dim)
        reference.rotary_and_cache(expected_qkv, cos_sin, slots, expected_cache)
        ops.rotary_and_cache(qkv, cos_sin, slots, kv_cache)
        assert torch.equal(qkv[:, :num_heads], expected_qkv[:, :num_heads])
        assert torch.equal(kv_cache, to_cpu_layout(expected_cache))


def test_a_token_of_a_negative_slot_is_written_nowhere(ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    kv_cache = torch.zeros(ops.kv_cache_shape(3, 16, 2, 32)).bfloat16()
    ops.rotary_and_cache(randn(0, 2, 8, 32), randn(1, 2, 2, 16), torch.tensor([-1, -7]), kv_cache[1:2])
    assert not kv_cache.any()


def test_any_number_of_threads_gives_the_same_bits(ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    results = []
    for num_threads in (1, 2, 3):
        ops.set_num_threads(num_threads)
        qkv, kv_cache = randn(0, 33, 6, 80), torch.zeros(ops.kv_cache_shape(3, 16, 1, 80)).bfloat16()
        ops.rotary_and_cache(qkv, randn(1, 33, 2, 40), torch.arange(33), kv_cache)
        results.append((qkv, kv_cache))
    for qkv, kv_cache in results[1:]:
        assert torch.equal(qkv, results[0][0]) and torch.equal(kv_cache, results[0][1])


def test_heads_that_do_not_lie_side_by_side_are_refused(ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    kv_cache = torch.zeros(ops.kv_cache_shape(1, 16, 1, 16)).bfloat16()
    with pytest.raises(ValueError, match="qkv must be contiguous bfloat16"):
        ops.rotary_and_cache(randn(0, 2, 4, 16)[:, :3], randn(1, 2, 2, 8), torch.tensor([0, 1]), kv_cache)
