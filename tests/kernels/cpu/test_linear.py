from collections.abc import Callable

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from stoker_kernels.cpu.ops import CpuOps

# Around the 12, 3 and 2 rows and the 32 outputs of a tile.
SHAPES = {
    "num_rows": st.one_of(st.integers(1, 40), st.sampled_from([1, 2, 3, 11, 12, 13, 24, 25, 37, 100])),
    "num_inputs": st.one_of(st.integers(1, 100), st.sampled_from([1, 8, 16, 288, 500])).map(lambda half: 2 * half),
    "num_outputs": st.one_of(st.integers(1, 100), st.sampled_from([1, 16, 17, 31, 32, 33, 63, 64, 65, 96, 129, 500, 1001])),
    "bias_seed": st.one_of(st.none(), st.integers(0, 1000)),
    "seed": st.integers(0, 1000),
}


def test_the_product_in_float32_is_exact_but_for_the_rounding_of_its_sums(ops: CpuOps, on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(**SHAPES)
    def check(num_rows: int, num_inputs: int, num_outputs: int, bias_seed: int | None, seed: int) -> None:
        x, weight = randn(seed, num_rows, num_inputs), randn(seed + 1, num_outputs, num_inputs)
        bias = None if bias_seed is None else randn(bias_seed, num_outputs)
        added = torch.zeros(num_outputs) if bias is None else bias
        exact = x.double() @ weight.double().T + added
        largest = x.double().abs() @ weight.double().T.abs() + added.abs()
        out = torch.full((num_rows + 1, num_outputs), 7.0)
        result = ops.linear_to_floats(x, ops.pack(weight, bias), out)
        assert result.data_ptr() == out.data_ptr() and result.shape == (num_rows, num_outputs)
        assert ((result.double() - exact).abs() <= (num_inputs + 4) * 2.0**-24 * largest).all()
        assert (out[num_rows] == 7.0).all()


def test_what_follows_a_product_is_done_to_its_rounded_result(ops: CpuOps, on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(**SHAPES)
    def check(num_rows: int, num_inputs: int, num_outputs: int, bias_seed: int | None, seed: int) -> None:
        x, weight = randn(seed, num_rows, num_inputs), randn(seed + 1, num_outputs, num_inputs)
        bias = None if bias_seed is None else randn(bias_seed, num_outputs)
        packed = ops.pack(weight, bias)
        rounded = ops.linear_to_floats(x, packed, torch.empty(num_rows, num_outputs)).bfloat16()
        assert torch.equal(ops.linear(x, packed), rounded)
        assert torch.equal(ops.make_linear(weight, bias)(x), rounded)
        residual = randn(seed + 3, num_rows, num_outputs)
        expected = residual + rounded
        ops.linear_add(x, packed, residual)
        assert torch.equal(residual, expected)


def test_gate_and_up_together_are_silu_and_mul_of_their_product(ops: CpuOps, on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(**SHAPES)
    def check(num_rows: int, num_inputs: int, num_outputs: int, bias_seed: int | None, seed: int) -> None:
        x, weight = randn(seed, num_rows, num_inputs), randn(seed + 1, 2 * num_outputs, num_inputs) / num_inputs**0.5
        bias = None if bias_seed is None else randn(bias_seed, 2 * num_outputs)
        expected = ops.silu_and_mul(ops.linear(x, ops.pack(weight, bias)))
        assert torch.equal(ops.linear_silu_and_mul(x, ops.pack(weight, bias, interleaved=True)), expected)


def test_a_row_has_the_same_bits_whatever_rows_are_beside_it_and_however_many_threads(ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    x, packed = randn(0, 41, 198), ops.pack(randn(1, 331, 198), randn(2, 331))
    expected = ops.linear_to_floats(x, packed, torch.empty(41, 331))
    for num_threads in (1, 2, 3):
        ops.set_num_threads(num_threads)
        for num_rows in range(1, 42):
            assert torch.equal(ops.linear_to_floats(x[41 - num_rows :], packed, torch.empty(num_rows, 331)), expected[41 - num_rows :])


def test_rows_may_be_a_view_into_a_wider_tensor(ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    wide, packed = randn(0, 5, 100), ops.pack(randn(1, 50, 40))
    assert torch.equal(ops.linear(wide[:, 30:70], packed), ops.linear(wide[:, 30:70].contiguous(), packed))


def test_nothing_is_written_past_an_odd_number_of_outputs(ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    x, packed, residual = randn(0, 7, 10), ops.pack(randn(1, 45, 10)), randn(2, 8, 45)
    last = residual[7].clone()
    ops.linear_add(x, packed, residual[:7])
    assert torch.equal(residual[7], last)


def test_a_nan_in_a_row_is_in_all_of_its_outputs_and_in_no_other_rows(ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    x, packed, gate_up = randn(0, 13, 32), ops.pack(randn(1, 40, 32)), ops.pack(randn(2, 40, 32), interleaved=True)
    x[5, 3] = torch.nan
    for result in (ops.linear(x, packed), ops.linear_silu_and_mul(x, gate_up)):
        assert result[5].isnan().all() and result[torch.arange(13) != 5].isfinite().all()


def test_a_step_without_rows_has_an_empty_result(ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    assert ops.linear(randn(0, 0, 16), ops.pack(randn(1, 8, 16))).shape == (0, 8)


def test_an_odd_number_of_inputs_is_refused(ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    with pytest.raises(ValueError, match="a weight needs an even number of inputs, it has 7"):
        ops.pack(randn(0, 8, 7))


@pytest.mark.parametrize("x", [torch.zeros(3, 16), torch.zeros(3, 18).bfloat16(), torch.zeros(16, 3).bfloat16().T], ids=["float32", "too wide", "transposed"])
def test_rows_that_are_not_what_the_weight_takes_are_refused(ops: CpuOps, randn: Callable[..., Tensor], x: Tensor) -> None:
    with pytest.raises(ValueError, match="rows of 16 bfloat16 are needed, there are"):
        ops.linear(x, ops.pack(randn(0, 8, 16)))
