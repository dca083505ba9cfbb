from collections.abc import Callable

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from stoker_kernels import reference
from stoker_kernels.triton.norm import fused_add_rms_norm, rms_norm

SHAPES = {
    "num_tokens": st.integers(0, 4),
    "size": st.sampled_from([1, 7, 64, 100, 576, 1000]),
    "dtype": st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    "seed": st.integers(0, 1000),
}


def test_rms_norm_equals_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(**SHAPES)
    def check(num_tokens: int, size: int, dtype: torch.dtype, seed: int) -> None:
        x, weight = randn(seed, num_tokens, size, dtype=dtype), randn(seed + 1, size, dtype=dtype)
        torch.testing.assert_close(rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))


def test_fused_add_rms_norm_equals_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(**SHAPES)
    def check(num_tokens: int, size: int, dtype: torch.dtype, seed: int) -> None:
        x, residual, weight = randn(seed, num_tokens, size, dtype=dtype), randn(seed + 1, num_tokens, size, dtype=dtype), randn(seed + 2, size, dtype=dtype)
        expected_residual = residual.clone()
        expected = reference.fused_add_rms_norm(x, expected_residual, weight, 1e-5)
        torch.testing.assert_close(fused_add_rms_norm(x, residual, weight, 1e-5), expected)
        assert torch.equal(residual, expected_residual)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_may_be_a_view_into_a_wider_tensor(randn: Callable[..., Tensor], dtype: torch.dtype) -> None:
    wide, weight = randn(0, 3, 80, dtype=dtype), randn(1, 40, dtype=dtype)
    torch.testing.assert_close(rms_norm(wide[:, 40:], weight, 1e-5), reference.rms_norm(wide[:, 40:], weight, 1e-5))
