"""What is done to each row by itself."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from stoker_kernels import reference
from stoker_kernels.cpu.ops import CpuOps

SHAPES = {"num_rows": st.integers(1, 40), "size": st.integers(1, 300).map(lambda half: 2 * half), "seed": st.integers(0, 1000)}
TWO_ROUNDINGS = {"rtol": 2.0**-6, "atol": 1e-6}


def test_rms_norm_equals_the_reference(ops: CpuOps, on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(**SHAPES)
    def check(num_rows: int, size: int, seed: int) -> None:
        x, weight = 3 * randn(seed, num_rows, size), randn(seed + 1, size)
        torch.testing.assert_close(ops.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5), **TWO_ROUNDINGS)


def test_fused_add_rms_norm_adds_in_place_and_equals_the_reference(ops: CpuOps, on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(**SHAPES)
    def check(num_rows: int, size: int, seed: int) -> None:
        x, residual, weight = randn(seed, num_rows, size), randn(seed + 1, num_rows, size), randn(seed + 2, size)
        expected_residual = residual.clone()
        expected = reference.fused_add_rms_norm(x, expected_residual, weight, 1e-5)
        torch.testing.assert_close(ops.fused_add_rms_norm(x, residual, weight, 1e-5), expected, **TWO_ROUNDINGS)
        assert torch.equal(residual, expected_residual)


def test_silu_and_mul_equals_the_reference(ops: CpuOps, on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(**SHAPES)
    def check(num_rows: int, size: int, seed: int) -> None:
        x = 4 * randn(seed, num_rows, 2 * size)
        torch.testing.assert_close(ops.silu_and_mul(x), reference.silu_and_mul(x), **TWO_ROUNDINGS)


def test_silu_of_any_bfloat16_up_to_a_million_equals_the_reference(ops: CpuOps) -> None:
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    gate = every[every.abs() < 1e6].view(1, -1)
    gate_up = torch.cat((gate, torch.ones_like(gate)), dim=1)
    torch.testing.assert_close(ops.silu_and_mul(gate_up), reference.silu_and_mul(gate_up), rtol=2.0**-7, atol=1e-32)


def test_a_nan_in_a_row_stays_there(ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    x, weight = randn(0, 3, 70), torch.ones(70).bfloat16()
    x[1, 65] = torch.nan
    assert ops.rms_norm(x, weight, 1e-5).isnan().all(1).tolist() == [False, True, False]
    assert ops.silu_and_mul(x).isnan().sum(1).tolist() == [0, 1, 0]
    x[1, 5] = torch.nan
    assert ops.silu_and_mul(x).isnan().sum(1).tolist() == [0, 2, 0]


def test_norms_of_huge_and_tiny_rows_stay_finite(ops: CpuOps) -> None:
    x = torch.stack((torch.full((34,), 1e18), torch.full((34,), 1e-30), torch.zeros(34))).bfloat16()
    assert ops.rms_norm(x, torch.ones(34).bfloat16(), 1e-5).isfinite().all()


def test_any_number_of_threads_gives_the_same_bits(ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    x, weight = randn(0, 77, 130), randn(1, 130)
    expected = ops.rms_norm(x, weight, 1e-5), ops.silu_and_mul(x)
    for num_threads in (1, 2, 3):
        ops.set_num_threads(num_threads)
        assert torch.equal(ops.rms_norm(x, weight, 1e-5), expected[0])
        assert torch.equal(ops.silu_and_mul(x), expected[1])


def test_a_tensor_that_cpp_would_misread_is_refused(ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    with pytest.raises(ValueError, match=r"residual must be contiguous bfloat16, it is torch\.bfloat16 with strides \(32, 1\)"):
        ops.fused_add_rms_norm(randn(0, 3, 16), randn(1, 3, 32)[:, :16], randn(2, 16), 1e-5)
    with pytest.raises(ValueError, match=r"x must be contiguous bfloat16, it is torch\.float32"):
        ops.fused_add_rms_norm(torch.zeros(3, 16), randn(1, 3, 16), randn(2, 16), 1e-5)
