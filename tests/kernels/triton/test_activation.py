from collections.abc import Callable

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from stoker_kernels import reference
from stoker_kernels.triton import activation


@pytest.mark.parametrize("op", ["silu_and_mul", "gelu_and_mul"])
def test_a_gated_activation_equals_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor], op: str) -> None:
    @on_random_shapes(
        num_tokens=st.integers(0, 3),
        size=st.sampled_from([1, 8, 96, 1000, 1536]),
        dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
        seed=st.integers(0, 1000),
    )
    def check(num_tokens: int, size: int, dtype: torch.dtype, seed: int) -> None:
        x = 2 * randn(seed, num_tokens, 2 * size, dtype=dtype)
        # Twice a rounding, of the activation and of the product.
        tolerance = max(2 * torch.finfo(dtype).eps, 2e-6)
        torch.testing.assert_close(getattr(activation, op)(x), getattr(reference, op)(x), rtol=tolerance, atol=1e-5)


def test_gelu_and_mul_of_the_reference_is_the_formula(randn: Callable[..., Tensor]) -> None:
    x = randn(0, 4, 32)
    gate, up = x.double().chunk(2, dim=1)
    formula = 0.5 * gate * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (gate + 0.044715 * gate**3))) * up
    torch.testing.assert_close(reference.gelu_and_mul(x), formula.float())
