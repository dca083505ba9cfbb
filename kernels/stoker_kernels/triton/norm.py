"""RMSNorm of rows, and the same after a residual is added: one program for a row, read and written once."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoker_kernels.triton.launch import launch_config, padded_size


@triton.jit
def _rms_norm_kernel(
    output: tl.tensor,  # [T, SIZE]
    x: tl.tensor,  # [T, SIZE]
    residual: tl.tensor,  # [T, SIZE], or x where there is none
    weight: tl.tensor,  # [SIZE]
    output_stride: tl.tensor,
    x_stride: tl.tensor,
    residual_stride: tl.tensor,
    epsilon: tl.tensor,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    dtype = output.dtype.element_ty
    values = tl.load(x + row * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        values += tl.load(residual + row * residual_stride + columns, mask=inside, other=0.0).to(tl.float32)
        tl.store(residual + row * residual_stride + columns, values.to(dtype), mask=inside)
        values = values.to(dtype).to(tl.float32)
    normalized = values * tl.rsqrt(tl.sum(values * values, axis=0) / SIZE + epsilon)
    scaled = normalized.to(dtype).to(tl.float32) * tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(output + row * output_stride + columns, scaled.to(dtype), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x [T, H], weight [H] → [T, H]."""
    return _launch(x, None, weight, epsilon)


def fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """residual += x, in place, then the norm of residual; both [T, H]."""
    return _launch(x, residual, weight, epsilon)


def _launch(x: Tensor, residual: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
    num_rows, size = x.shape
    output = torch.empty((num_rows, size), dtype=x.dtype, device=x.device)
    block = padded_size(size)
    added = x if residual is None else residual
    _rms_norm_kernel[(num_rows,)](
        output,
        x,
        added,
        weight,
        output.stride(0),
        x.stride(0),
        added.stride(0),
        epsilon,
        SIZE=size,
        BLOCK=block,
        HAS_RESIDUAL=residual is not None,
        **launch_config("rms_norm", block, x.device),
    )
    return output
