import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stoker_kernels import reference
from stoker_kernels.torch_ops import fused_add_rms_norm, kv_cache_shape, reshape_and_cache, rms_norm, rotary_embedding, silu_and_mul

DTYPES = [torch.float32, torch.bfloat16]

shapes = given(num_tokens=st.integers(1, 40), size=st.integers(1, 50), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 1000))
few = settings(max_examples=30, deadline=None, derandomize=True)


def randn(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@few
@shapes
def test_rms_norm_equals_the_reference(num_tokens: int, size: int, dtype: torch.dtype, seed: int) -> None:
    x, weight = randn(seed, num_tokens, size, dtype=dtype), randn(seed + 1, size, dtype=dtype)
    torch.testing.assert_close(rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))


def test_rms_norm_rounds_the_normalized_value_before_it_is_scaled() -> None:
    x, weight = randn(0, 8, 64, dtype=torch.bfloat16), randn(1, 64, dtype=torch.bfloat16)
    assert torch.equal(rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))


def test_rms_norm_of_the_reference_is_the_formula() -> None:
    x, weight = randn(0, 4, 32), randn(1, 32)
    formula = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    torch.testing.assert_close(reference.rms_norm(x, weight, 1e-5), formula.float())


@few
@shapes
def test_fused_add_rms_norm_adds_in_place_and_equals_the_reference(num_tokens: int, size: int, dtype: torch.dtype, seed: int) -> None:
    x, residual = randn(seed, num_tokens, size, dtype=dtype), randn(seed + 1, num_tokens, size, dtype=dtype)
    weight, expected_residual = randn(seed + 2, size, dtype=dtype), x + residual
    expected = reference.fused_add_rms_norm(x, residual.clone(), weight, 1e-5)
    torch.testing.assert_close(fused_add_rms_norm(x, residual, weight, 1e-5), expected)
    assert torch.equal(residual, expected_residual)


@few
@shapes
def test_silu_and_mul_equals_the_reference(num_tokens: int, size: int, dtype: torch.dtype, seed: int) -> None:
    x = randn(seed, num_tokens, 2 * size, dtype=dtype)
    torch.testing.assert_close(silu_and_mul(x), reference.silu_and_mul(x))


def test_silu_and_mul_of_the_reference_is_the_formula() -> None:
    x = randn(0, 4, 32)
    gate, up = x.double()[:, :16], x.double()[:, 16:]
    torch.testing.assert_close(reference.silu_and_mul(x), (gate / (1 + (-gate).exp()) * up).float())


@few
@given(num_tokens=st.integers(1, 20), heads=st.integers(1, 5), half=st.integers(1, 16), unrotated=st.integers(0, 4), dtype=st.sampled_from(DTYPES))
def test_rotary_embedding_equals_the_reference_and_leaves_other_dimensions_alone(
    num_tokens: int, heads: int, half: int, unrotated: int, dtype: torch.dtype
) -> None:
    wide = randn(0, num_tokens, heads + 2, 2 * half + unrotated, dtype=dtype)
    cos_sin, expected = randn(1, num_tokens, 2, half, dtype=dtype), wide.clone()
    rotary_embedding(wide[:, :heads], cos_sin)
    reference.rotary_embedding(expected[:, :heads], cos_sin)
    assert torch.equal(wide, expected)


def test_rotary_embedding_of_the_reference_rotates_pairs_half_a_head_apart() -> None:
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    reference.rotary_embedding(x, torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]))
    assert x.tolist() == [[[-3.0, 2.0, 1.0, 4.0]]]


@few
@given(num_tokens=st.integers(1, 30), block_size=st.sampled_from([8, 16]), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 1000))
def test_reshape_and_cache_writes_its_slots_and_no_others(num_tokens: int, block_size: int, dtype: torch.dtype, seed: int) -> None:
    kv_cache = torch.zeros(kv_cache_shape(5, block_size, 2, 8), dtype=dtype)
    expected = kv_cache.clone()
    key_value = randn(seed, num_tokens, 2, 2, 8, dtype=dtype)
    slots = torch.randperm(5 * block_size, generator=torch.Generator().manual_seed(seed))[:num_tokens]
    reshape_and_cache(key_value, kv_cache, slots)
    reference.reshape_and_cache(key_value, expected, slots)
    assert torch.equal(kv_cache, expected)


def test_reshape_and_cache_of_the_reference_puts_a_token_in_its_block_at_its_offset() -> None:
    kv_cache, key_value = torch.zeros(kv_cache_shape(3, 8, 1, 2)), randn(0, 2, 2, 1, 2)
    reference.reshape_and_cache(key_value, kv_cache, torch.tensor([8 * 2 + 5, 3]))
    expected = torch.zeros(3, 8, 2, 1, 2)
    expected[2, 5], expected[0, 3] = key_value[0], key_value[1]
    assert torch.equal(kv_cache, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms_of_huge_and_tiny_rows_stay_finite(dtype: torch.dtype) -> None:
    x = torch.stack((torch.full((16,), 1e18), torch.full((16,), 1e-30), torch.zeros(16))).to(dtype)
    assert rms_norm(x, torch.ones(16, dtype=dtype), 1e-5).isfinite().all()
