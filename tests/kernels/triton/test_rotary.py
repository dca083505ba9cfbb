from collections.abc import Callable

import torch
from hypothesis import strategies as st
from torch import Tensor

from stoker_kernels import reference
from stoker_kernels.triton.cache import reshape_and_cache
from stoker_kernels.triton.rotary import rotary_and_cache, rotary_embedding

DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])
# Half the rotated dimensions, dimensions that are not.
HEADS_OF = st.sampled_from([(32, 0), (40, 0), (48, 0), (64, 0), (16, 32), (5, 3), (128, 0)])


def slots(seed: int, num_tokens: int, num_slots: int, device: str) -> Tensor:
    """Distinct slots, the first none where the seed is odd."""
    chosen = torch.randperm(num_slots, generator=torch.Generator().manual_seed(seed))[:num_tokens]
    chosen[: seed % 2] = -1
    return chosen.to(device)


def test_rotary_embedding_equals_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(num_tokens=st.integers(0, 3), num_heads=st.integers(1, 11), sizes=HEADS_OF, dtype=DTYPES, seed=st.integers(0, 1000))
    def check(num_tokens: int, num_heads: int, sizes: tuple[int, int], dtype: torch.dtype, seed: int) -> None:
        half, rest = sizes
        wide, cos_sin = randn(seed, num_tokens, num_heads + 1, 2 * half + rest, dtype=dtype), randn(seed + 1, num_tokens, 2, half, dtype=dtype)
        expected = wide.clone()
        reference.rotary_embedding(expected[:, :num_heads], cos_sin)
        rotary_embedding(wide[:, :num_heads], cos_sin)
        torch.testing.assert_close(wide, expected)


def test_rotary_and_cache_equals_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor], device: str) -> None:
    @on_random_shapes(
        num_tokens=st.integers(0, 3),
        heads=st.sampled_from([(1, 1), (9, 3), (5, 1), (8, 2), (3, 3)]),
        sizes=HEADS_OF,
        block_size=st.sampled_from([8, 16, 24]),
        dtypes=st.sampled_from([(dtype, dtype) for dtype in (torch.float32, torch.float16, torch.bfloat16)] + [(torch.bfloat16, torch.float8_e4m3fn)]),
        seed=st.integers(0, 1000),
    )
    def check(num_tokens: int, heads: tuple[int, int], sizes: tuple[int, int], block_size: int, dtypes: tuple[torch.dtype, torch.dtype], seed: int) -> None:
        (num_heads, num_kv_heads), (half, rest), (dtype, cache_dtype) = heads, sizes, dtypes
        qkv = 3 * randn(seed, num_tokens, num_heads + 2 * num_kv_heads, 2 * half + rest, dtype=dtype)
        cos_sin = randn(seed + 1, num_tokens, 2, half, dtype=dtype)
        kv_cache = torch.zeros(3, block_size, 2, num_kv_heads, 2 * half + rest, dtype=cache_dtype, device=device)
        scale = None if cache_dtype == dtype else randn(seed + 2, 2, num_kv_heads).abs() / 20 + 0.001
        expected_qkv, expected_cache, slot_mapping = qkv.clone(), kv_cache.clone(), slots(seed, num_tokens, 3 * block_size, device)
        reference.rotary_and_cache(expected_qkv, cos_sin, slot_mapping, expected_cache, scale)
        rotary_and_cache(qkv, cos_sin, slot_mapping, kv_cache, scale)
        torch.testing.assert_close(qkv, expected_qkv)
        torch.testing.assert_close(kv_cache.float(), expected_cache.float(), rtol=1e-3 if scale is None else 0.13, atol=1e-4)


def test_reshape_and_cache_equals_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor], device: str) -> None:
    @on_random_shapes(
        num_tokens=st.integers(0, 5),
        num_kv_heads=st.sampled_from([1, 3, 5]),
        head_dim=st.sampled_from([64, 80, 96, 128, 256]),
        block_size=st.sampled_from([8, 16, 24]),
        dtypes=st.sampled_from([(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.float16, torch.float8_e4m3fn)]),
        seed=st.integers(0, 1000),
    )
    def check(num_tokens: int, num_kv_heads: int, head_dim: int, block_size: int, dtypes: tuple[torch.dtype, torch.dtype], seed: int) -> None:
        dtype, cache_dtype = dtypes
        wide = randn(seed, num_tokens, 2 * num_kv_heads + 1, head_dim, dtype=dtype)
        key_value = wide[:, 1:].view(num_tokens, 2, num_kv_heads, head_dim)
        kv_cache = torch.zeros(2, block_size, 2, num_kv_heads, head_dim, dtype=cache_dtype, device=device)
        scale = None if cache_dtype == dtype else torch.full((2, num_kv_heads), 0.004, device=device)
        expected, slot_mapping = kv_cache.clone(), slots(seed, num_tokens, 2 * block_size, device)
        reference.reshape_and_cache(key_value, expected, slot_mapping, scale)
        reshape_and_cache(key_value, kv_cache, slot_mapping, scale)
        assert torch.equal(kv_cache.float(), expected.float())
        assert kv_cache.isfinite().all() if scale is None else kv_cache.float().abs().max() <= 448
