"""Linear layers with the products of torch: one call each, the weight laid out once for the device."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

Linear = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class PlainLinear:
    """x [T, in] → [T, out], with weight [out, in] as checkpoints have it."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """The same with the weight in oneDNN's blocked layout. Measured in bfloat16, [3072, 576]: 1 row 223 → 140 µs, 32 rows 462 → 331, 1024 rows 8658 → 8413.

    A row has the same bits among any others, in any place.
    """

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        num_rows = len(x)
        missing = padded_rows(num_rows) - num_rows
        if missing:
            x = functional.pad(x, (0, 0, 0, missing))
        result: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self.weight, self.bias, "none", [], "")
        return result[:num_rows]


def padded_rows(num_rows: int) -> int:
    """The number of rows a product is computed with: one of about 60, up to 2,048; never 1.

    A row alone has other bits than among others, with a float32 weight of [576, 1536] or a bfloat16 one of [3072, 2048]. In any two larger numbers, and
    with 1 to 16 threads, it has the same.

    oneDNN compiles a kernel for each number it meets, and keeps it: with any number, 4,000 short requests made the engine's heap grow by 220 MB, with
    these by 13 MB, all of it in the first 1,200. Mixed load with long prompts meets them slowly: 120 MB over 7,000 requests, and 0.2 MB over 1,400 once all
    had been met.
    """
    num_rows = max(num_rows, 2)
    for most, multiple in ((8, 1), (64, 8), (256, 16)):
        if num_rows <= most:
            return -(-num_rows // multiple) * multiple
    return -(-num_rows // 64) * 64


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """A linear layer in the fastest layout for the weight's device and dtype."""
    if _can_pack(weight):
        with torch.inference_mode():
            return PackedLinear(torch.ops.mkldnn._reorder_linear_weight.default(weight, None), bias)
    return PlainLinear(weight, bias)


def _can_pack(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if weight.dtype == torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return weight.dtype == torch.float32
