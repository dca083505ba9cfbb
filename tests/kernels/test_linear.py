import pytest
import torch
from torch.nn import functional

from stoker_kernels.linear import PackedLinear, make_linear, padded_rows


def test_products_are_computed_with_few_different_numbers_of_rows() -> None:
    sizes = [padded_rows(num_rows) for num_rows in range(1, 2049)]
    assert all(size >= num_rows for num_rows, size in enumerate(sizes, start=1))
    assert sizes == sorted(sizes)
    assert sizes[:8] == [2, 2, 3, 4, 5, 6, 7, 8]
    assert len(set(sizes)) < 64


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padding_changes_no_row(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(48, 32, generator=generator).to(dtype)
    bias = torch.randn(48, generator=generator).to(dtype)
    linear = make_linear(weight, bias)
    for num_rows in (1, 7, 8, 9, 63, 65, 257):
        x = torch.randn(num_rows, 32, generator=generator).to(dtype)
        result = linear(x)
        assert result.shape == (num_rows, 48)
        torch.testing.assert_close(result.float(), functional.linear(x.float(), weight.float(), bias.float()), rtol=2e-2, atol=5e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(576, 1536), (3072, 2048)])
def test_a_row_has_the_same_bits_alone_and_among_any_others(shape: tuple[int, int], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(2)
    linear = make_linear(torch.randn(shape, generator=generator).to(dtype))
    x = torch.randn(130, shape[1], generator=generator).to(dtype)
    expected = linear(x)
    for num_rows in (1, 2, 3, 7, 8, 9, 33, 65, 129):
        assert torch.equal(linear(x[:num_rows]), expected[:num_rows])
        assert torch.equal(linear(x[-num_rows:]), expected[-num_rows:])


def test_weights_are_packed_on_this_cpu() -> None:
    assert isinstance(make_linear(torch.zeros(16, 16)), PackedLinear)
