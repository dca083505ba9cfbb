from collections.abc import Callable

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from stoker_kernels import reference
from stoker_kernels.cpu.ops import CpuOps
from stoker_kernels.cpu.packed_weight import WeightFormat

GROUP = 64
# Around the rows of a tile (12, 6, 3, 2 and 1), its 32 outputs, and the 64 inputs that share an activation's scale.
SHAPES = {
    "num_rows": st.one_of(st.integers(1, 40), st.sampled_from([1, 2, 3, 6, 7, 11, 12, 13, 24, 25, 37, 100])),
    "num_inputs": st.one_of(st.integers(1, 100), st.sampled_from([1, 31, 32, 33, 64, 65, 288, 500])).map(lambda half: 2 * half),
    "num_outputs": st.one_of(st.integers(1, 100), st.sampled_from([1, 16, 17, 31, 32, 33, 63, 64, 65, 96, 129, 500, 1001])),
    "bias_seed": st.one_of(st.none(), st.integers(0, 1000)),
    "seed": st.integers(0, 1000),
}
FORMATS = [WeightFormat.INT8, WeightFormat.INT8_DOT]


@pytest.fixture(params=FORMATS, ids=[format.name.lower() for format in FORMATS])
def quantized_ops(ops: CpuOps, request: pytest.FixtureRequest) -> CpuOps:
    return CpuOps(ops.instruction_set, request.param)


def rounded_rows(x: Tensor) -> Tensor:
    """x [T, K] in steps of a 127th of the largest of each 64 of a row."""
    groups = torch.nn.functional.pad(x.float(), (0, -x.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    largest = groups.abs().amax(-1, keepdim=True)
    # Not 127 / largest, which torch computes as 127 times the reciprocal.
    inverse = torch.where(largest > 0, torch.tensor(127.0) / largest, 0)
    values = (groups * inverse).round()
    return (values.double() * (largest / 127)).flatten(1)[:, : x.shape[1]]


def product(x: Tensor, weight: Tensor, format: WeightFormat) -> tuple[Tensor, Tensor]:
    """The reference's product in float64, and the largest that sums on the way to it can be."""
    values, scales = reference.quantize_int8(weight)
    inputs = x.double() if format is WeightFormat.INT8 else rounded_rows(x)
    return inputs @ values.double().T * scales, inputs.abs() @ values.double().abs().T * scales


def to_floats(ops: CpuOps, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    packed = ops.pack(weight, bias)
    return ops.linear_to_floats(x, packed, torch.empty(len(x), len(weight)))


def test_the_product_with_rounded_weights_is_exact_but_for_the_rounding_of_its_sums(
    quantized_ops: CpuOps, on_random_shapes: Callable, randn: Callable[..., Tensor]
) -> None:
    @on_random_shapes(**SHAPES)
    def check(num_rows: int, num_inputs: int, num_outputs: int, bias_seed: int | None, seed: int) -> None:
        x, weight = randn(seed, num_rows, num_inputs), randn(seed + 1, num_outputs, num_inputs)
        bias = None if bias_seed is None else randn(bias_seed, num_outputs)
        added = torch.zeros(num_outputs) if bias is None else bias
        exact, largest = product(x, weight, quantized_ops.weight_format)
        error = (to_floats(quantized_ops, x, weight, bias).double() - exact - added).abs()
        assert (error <= (num_inputs + 8) * 2.0**-24 * (largest + added.abs())).all()


def test_what_follows_a_product_is_done_to_its_rounded_result(quantized_ops: CpuOps, on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(**SHAPES)
    def check(num_rows: int, num_inputs: int, num_outputs: int, bias_seed: int | None, seed: int) -> None:
        ops = quantized_ops
        x, weight = randn(seed, num_rows, num_inputs), randn(seed + 1, 2 * num_outputs, num_inputs) / num_inputs**0.5
        bias = None if bias_seed is None else randn(bias_seed, 2 * num_outputs)
        rounded = to_floats(ops, x, weight, bias).bfloat16()
        assert torch.equal(ops.make_linear(weight, bias)(x), rounded)
        residual = randn(seed + 3, num_rows, 2 * num_outputs)
        expected = residual + rounded
        ops.linear_add(x, ops.pack(weight, bias), residual)
        assert torch.equal(residual, expected)
        assert torch.equal(ops.linear_silu_and_mul(x, ops.pack(weight, bias, interleaved=True)), ops.silu_and_mul(rounded))


def test_the_weights_are_the_references(quantized_ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    weight = randn(0, 71, 66)
    values, scales = reference.quantize_int8(weight)
    # One input at a time, which is exact in 8 bits, too.
    assert torch.equal(to_floats(quantized_ops, torch.eye(66).bfloat16() * 127, weight), (127 * values.float() * scales[:, None]).T)


def test_a_row_has_the_same_bits_whatever_rows_are_beside_it_and_however_many_threads(quantized_ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    x, weight, bias = randn(0, 41, 198), randn(1, 331, 198), randn(2, 331)
    expected = to_floats(quantized_ops, x, weight, bias)
    for num_threads in (1, 2, 3):
        quantized_ops.set_num_threads(num_threads)
        for num_rows in range(1, 42):
            assert torch.equal(to_floats(quantized_ops, x[41 - num_rows :], weight, bias), expected[41 - num_rows :])


def test_outputs_and_rows_of_zeros_stay_zeros(quantized_ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    x, weight = randn(0, 3, 70), randn(1, 33, 70)
    x[1], weight[2] = 0.0, 0.0
    result = to_floats(quantized_ops, x, weight)
    assert (result[1] == 0).all() and (result[:, 2] == 0).all() and (result[0, 3:] != 0).all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_in_a_row_is_in_all_of_its_outputs_and_in_no_other_rows(quantized_ops: CpuOps, randn: Callable[..., Tensor], value: float) -> None:
    x, weight = randn(0, 13, 132), randn(1, 40, 132).abs() + 1
    x[5, 70] = value
    result = to_floats(quantized_ops, x, weight)
    assert not result[5].isfinite().any() and result[torch.arange(13) != 5].isfinite().all()


def test_the_smallest_and_the_largest_numbers_keep_their_precision(quantized_ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    for exponent in (-100, 100):
        x, weight = (randn(0, 4, 64).float() * 2.0**exponent).bfloat16(), randn(1, 9, 64)
        exact, largest = product(x, weight, quantized_ops.weight_format)
        assert ((to_floats(quantized_ops, x, weight).double() - exact).abs() <= 80 * 2.0**-24 * largest).all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_in_a_weight_is_in_its_output_and_in_no_other(quantized_ops: CpuOps, randn: Callable[..., Tensor], value: float) -> None:
    x, weight = randn(0, 3, 132), randn(1, 40, 132)
    weight[7, 70] = value
    result = to_floats(quantized_ops, x, weight)
    assert not result[:, 7].isfinite().any() and result[:, torch.arange(40) != 7].isfinite().all()
