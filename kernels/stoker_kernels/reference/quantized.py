"""Matrix products with integer weights: y = x · dequantized weightᵀ, in float32, rounded to x's dtype at the end.

int8: weight [N, K], one scale for each output. int4: groups of G inputs share a scale (and a zero point): packed [N, K / 2] uint8, where byte j of a group
has input j in its low half and input j + G / 2 in its high half, so that either half of the bytes multiplies neighboring inputs. Values are 0 to 15.
"""

import torch
from torch import Tensor

SYMMETRIC_ZERO = 8
"""The zero point of every group where none is given."""


def int8_matmul(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """x [T, K], weight int8 [N, K], scales float32 [N] → [T, N]."""
    return (x.float() @ weight.float().T * scales).to(x.dtype)


def int4_matmul(x: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor | None = None) -> Tensor:
    """x [T, K], packed uint8 [N, K / 2], scales float32 [N, K / G], zeros uint8 [N, K / G] (None: 8 everywhere) → [T, N]."""
    num_outputs, num_groups = scales.shape
    values = unpack_int4(packed, num_groups).float().view(num_outputs, num_groups, -1)
    offset = SYMMETRIC_ZERO if zeros is None else zeros.float()[:, :, None]
    weight = ((values - offset) * scales[:, :, None]).flatten(1)
    return (x.float() @ weight.T).to(x.dtype)


def quantize_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight [N, K] → int8 [N, K] and scales float32 [N], rounded to nearest."""
    scales = weight.float().abs().amax(dim=1).clamp_(min=1e-12) / 127
    return (weight.float() / scales[:, None]).round_().to(torch.int8), scales


def quantize_int4(weight: Tensor, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """weight [N, K] → packed, scales and zeros, from the smallest and largest value of each group and 0."""
    groups = weight.float().reshape(len(weight), -1, group_size)
    low, high = groups.amin(dim=2).clamp_(max=0), groups.amax(dim=2).clamp_(min=0)
    scales = (high - low).clamp_(min=1e-12) / 15
    zeros = (-low / scales).round_()
    values = (groups / scales[:, :, None] + zeros[:, :, None]).round_().clamp_(0, 15)
    return pack_int4(values.flatten(1).to(torch.uint8), scales.shape[1]), scales, zeros.to(torch.uint8)


def pack_int4(values: Tensor, num_groups: int) -> Tensor:
    """values uint8 [N, K], 0 to 15 → packed uint8 [N, K / 2]."""
    low, high = values.reshape(len(values), num_groups, 2, -1).unbind(2)
    return (low | high << 4).flatten(1)


def unpack_int4(packed: Tensor, num_groups: int) -> Tensor:
    """packed uint8 [N, K / 2] → values uint8 [N, K], 0 to 15."""
    groups = packed.reshape(len(packed), num_groups, -1)
    return torch.stack((groups & 15, groups >> 4), dim=2).flatten(1)
