"""Weights as the C++ products take them: in tiles of 32 outputs, in one of three formats."""

import ctypes
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from stoker_kernels.cpu.library import Matrix
from stoker_kernels.cpu.memory import Arena

TILE_OUTPUTS = 32
HALF_TILE = TILE_OUTPUTS // 2


class WeightFormat(IntEnum):
    """What a weight is kept in. matrix.h has the same numbers."""

    BFLOAT16 = 0
    INT8 = 1
    """Whole numbers of -127 to 127 times a scale for each output; activations stay bfloat16."""
    INT8_DOT = 2
    """The same weights; activations become whole numbers, too, times a scale for each 64 of a row, for products of bytes."""


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight [outputs, inputs], its bias and its scales. `interleaved`: gate and up in turns, for linear_silu_and_mul."""

    tiles: Tensor
    bias: Tensor | None
    scales: Tensor | None
    outputs: int
    inputs: int
    format: WeightFormat
    interleaved: bool

    def matrix(self) -> Matrix:
        """The C view of it; it holds no reference."""
        bias, scales = (None if tensor is None else tensor.data_ptr() for tensor in (self.bias, self.scales))
        return Matrix(self.tiles.data_ptr(), bias, scales, self.inputs, self.outputs, self.format)


def pack(library: ctypes.CDLL, weight: Tensor, bias: Tensor | None, weight_format: WeightFormat, arena: Arena, *, interleaved: bool) -> PackedWeight:
    """Lays out a contiguous weight in bfloat16 [outputs, inputs], in the arena. interleaved: its first half is gate, its second up.

    Raises ValueError for an odd number of inputs.
    """
    outputs, inputs = weight.shape
    if inputs % 2:
        raise ValueError(f"a weight needs an even number of inputs, it has {inputs}")
    if bias is not None and (bias.dtype != torch.bfloat16 or bias.shape != (outputs,)):
        raise ValueError(f"a bias must be bfloat16 [{outputs}], it is {bias.dtype} {list(bias.shape)}")
    columns = 2 * _round_up(outputs // 2, HALF_TILE) if interleaved else _round_up(outputs, TILE_OUTPUTS)
    tiles = arena.allocate(columns * _column_bytes(inputs, weight_format))
    scales = None if weight_format is WeightFormat.BFLOAT16 else torch.zeros(columns)
    library.stoker_pack(weight.data_ptr(), outputs, inputs, int(interleaved), weight_format, tiles.data_ptr(), None if scales is None else scales.data_ptr())
    padded_bias = None if bias is None else _pad_bias(bias, columns, interleaved=interleaved)
    return PackedWeight(tiles, padded_bias, scales, outputs, inputs, weight_format, interleaved)


def _column_bytes(inputs: int, weight_format: WeightFormat) -> int:
    match weight_format:
        case WeightFormat.BFLOAT16:
            return 2 * inputs
        case WeightFormat.INT8:
            return inputs
        case WeightFormat.INT8_DOT:
            return _round_up(inputs, 4)


def _pad_bias(bias: Tensor, columns: int, *, interleaved: bool) -> Tensor:
    """A bias in the order of the tiles' columns."""
    if not interleaved:
        return torch.nn.functional.pad(bias, (0, columns - len(bias)))
    gate_up = torch.nn.functional.pad(bias.view(2, -1), (0, (columns - len(bias)) // 2))
    return gate_up.view(2, -1, HALF_TILE).transpose(0, 1).reshape(-1)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
