"""silu(gate) · up and gelu(gate) · up of x [T, 2·I] = gate | up, in one pass."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoker_kernels.triton.launch import launch_config

SQRT_2_OVER_PI = 0.7978845608028654


@triton.jit
def _gated_activation_kernel(
    output: tl.tensor,  # [T, size]
    x: tl.tensor,  # [T, 2 · size]
    x_stride: tl.tensor,
    size: tl.tensor,
    IS_GELU: tl.constexpr,
    GELU_FACTOR: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < size
    gate = tl.load(x + row * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * x_stride + size + columns, mask=inside, other=0.0).to(tl.float32)
    # 1 + tanh(z) = 2 · sigmoid(2 · z).
    slope = 2 * GELU_FACTOR * (1 + 0.044715 * gate * gate) if IS_GELU else 1.0
    activated = gate * tl.sigmoid(slope * gate)
    dtype = output.dtype.element_ty
    tl.store(output + row * size + columns, (activated.to(dtype).to(tl.float32) * up).to(dtype), mask=inside)


def silu_and_mul(x: Tensor) -> Tensor:
    """x [T, 2·I] → [T, I]."""
    return _launch(x, is_gelu=False)


def gelu_and_mul(x: Tensor) -> Tensor:
    """With the tanh approximation of gelu; x [T, 2·I] → [T, I]."""
    return _launch(x, is_gelu=True)


def _launch(x: Tensor, *, is_gelu: bool) -> Tensor:
    num_rows, size = x.shape[0], x.shape[1] // 2
    output = torch.empty((num_rows, size), dtype=x.dtype, device=x.device)
    config = launch_config("gated_activation", "*", x.device)
    grid = (num_rows, triton.cdiv(size, config["BLOCK"]))
    _gated_activation_kernel[grid](output, x, x.stride(0), size, IS_GELU=is_gelu, GELU_FACTOR=SQRT_2_OVER_PI, **config)
    return output
