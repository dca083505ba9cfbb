from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from stoker_kernels import reference
from stoker_kernels.triton.quantized import int4_matmul, int8_matmul

SHAPES: dict[str, st.SearchStrategy[Any]] = {
    "num_rows": st.sampled_from([0, 1, 3, 17, 40]),
    "num_outputs": st.sampled_from([1, 50, 64, 200]),
    "dtype": st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    "seed": st.integers(0, 1000),
}


def test_int8_matmul_equals_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(size=st.sampled_from([16, 100, 128, 300]), **SHAPES)
    def check(num_rows: int, num_outputs: int, size: int, dtype: torch.dtype, seed: int) -> None:
        x, (weight, scales) = randn(seed, num_rows, size, dtype=dtype), reference.quantize_int8(randn(seed + 1, num_outputs, size))
        torch.testing.assert_close(int8_matmul(x, weight, scales), reference.int8_matmul(x, weight, scales), rtol=1e-2, atol=2e-4 * size)


@pytest.mark.parametrize("zero_point", ["symmetric", "of each group"])
def test_int4_matmul_equals_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor], zero_point: str) -> None:
    @on_random_shapes(num_groups=st.integers(1, 3), group_size=st.sampled_from([32, 64, 128]), **SHAPES)
    def check(num_rows: int, num_outputs: int, num_groups: int, group_size: int, dtype: torch.dtype, seed: int) -> None:
        size = num_groups * group_size
        x, (packed, scales, zeros) = randn(seed, num_rows, size, dtype=dtype), reference.quantize_int4(randn(seed + 1, num_outputs, size), group_size)
        weight = (packed, scales) if zero_point == "symmetric" else (packed, scales, zeros)
        torch.testing.assert_close(int4_matmul(x, *weight), reference.int4_matmul(x, *weight), rtol=1e-2, atol=2e-4 * size)


def test_quantized_weights_of_the_reference_are_near_the_weights(randn: Callable[..., Tensor]) -> None:
    weight = randn(0, 40, 128)
    identity = torch.eye(128, device=weight.device)
    eight, four = reference.quantize_int8(weight), reference.quantize_int4(weight, 32)
    for whole, step in (
        (reference.int8_matmul(identity, *eight).T, eight[1][:, None]),
        (reference.int4_matmul(identity, *four).T, four[1].repeat_interleave(32, 1)),
    ):
        assert ((whole - weight).abs() <= step * 1.01).all()


def test_int4_values_survive_packing() -> None:
    values = torch.randint(16, (5, 96), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    assert torch.equal(reference.unpack_int4(reference.pack_int4(values, 3), 3), values)
    assert reference.pack_int4(values, 3)[0, 17] == values[0, 33] | values[0, 49] << 4
