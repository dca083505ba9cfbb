"""Matrix products with integer weights, which are made whole in registers: int8 with a scale for each output, int4 with one for each group of inputs."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoker_kernels.triton.launch import launch_config, product_dtype
from stoker_kernels.triton.product import product, row_class

SYMMETRIC_ZERO = 8
"""The zero point of every group where none is given."""


@triton.jit(do_not_specialize=["num_rows"])
def _int8_kernel(
    output: tl.tensor,  # [T, num_outputs]
    x: tl.tensor,  # [T, SIZE]
    weight: tl.tensor,  # int8 [num_outputs, SIZE]
    scales: tl.tensor,  # float32 [num_outputs]
    x_stride: tl.tensor,
    num_rows: tl.tensor,
    num_outputs: tl.tensor,
    SIZE: tl.constexpr,
    PRODUCT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
) -> None:
    rows = (tl.program_id(1) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    columns = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)
    is_row, is_column = rows < num_rows, columns < num_outputs
    total = product(x + rows * x_stride, is_row, weight + columns * SIZE, is_column, SIZE, ROWS, COLUMNS, DEPTH, PRODUCT)
    scaled = total * tl.load(scales + columns, mask=is_column, other=0.0)[None, :]
    tl.store(output + rows[:, None] * num_outputs + columns[None, :], scaled.to(output.dtype.element_ty), mask=is_row[:, None] & is_column[None, :])


@triton.jit(do_not_specialize=["num_rows"])
def _int4_kernel(
    output: tl.tensor,  # [T, num_outputs]
    x: tl.tensor,  # [T, NUM_GROUPS · GROUP_SIZE]
    packed: tl.tensor,  # uint8 [num_outputs, NUM_GROUPS · GROUP_SIZE / 2]
    scales: tl.tensor,  # float32 [num_outputs, NUM_GROUPS]
    zeros: tl.tensor,  # uint8 [num_outputs, NUM_GROUPS], or None
    x_stride: tl.tensor,
    num_rows: tl.tensor,
    num_outputs: tl.tensor,
    NUM_GROUPS: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    SYMMETRIC_ZERO: tl.constexpr,
    PRODUCT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    rows = (tl.program_id(1) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    columns = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)
    is_row, is_column = (rows < num_rows)[:, None], columns < num_outputs
    half = tl.arange(0, GROUP_SIZE // 2)
    total = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    for group in range(NUM_GROUPS):
        at = x + rows[:, None] * x_stride + group * GROUP_SIZE + half[None, :]
        pairs = tl.load(packed + (columns[None, :] * NUM_GROUPS + group) * (GROUP_SIZE // 2) + half[:, None], mask=is_column[None, :], other=0)
        low, high = (pairs & 15).to(tl.int8), (pairs >> 4).to(tl.int8)
        if zeros is None:
            low, high = low - SYMMETRIC_ZERO, high - SYMMETRIC_ZERO
        else:
            zero = tl.load(zeros + columns * NUM_GROUPS + group, mask=is_column, other=0).to(tl.int8)[None, :]
            low, high = low - zero, high - zero
        part = tl.dot(tl.load(at, mask=is_row, other=0.0).to(PRODUCT), low.to(PRODUCT), input_precision="ieee")
        part = tl.dot(tl.load(at + GROUP_SIZE // 2, mask=is_row, other=0.0).to(PRODUCT), high.to(PRODUCT), part, input_precision="ieee")
        total += part * tl.load(scales + columns * NUM_GROUPS + group, mask=is_column, other=0.0)[None, :]
    tl.store(output + rows[:, None] * num_outputs + columns[None, :], total.to(output.dtype.element_ty), mask=is_row & is_column[None, :])


def int8_matmul(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """x [T, K], weight int8 [N, K], contiguous, scales float32 [N] → [T, N]."""
    (num_rows, size), num_outputs = x.shape, len(weight)
    output = torch.empty((num_rows, num_outputs), dtype=x.dtype, device=x.device)
    config = launch_config("int8_matmul", row_class(num_rows), x.device)
    grid = (triton.cdiv(num_outputs, config["COLUMNS"]), triton.cdiv(num_rows, config["ROWS"]))
    _int8_kernel[grid](output, x, weight, scales, x.stride(0), num_rows, num_outputs, SIZE=size, PRODUCT=product_dtype(x), **config)
    return output


def int4_matmul(x: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor | None = None) -> Tensor:
    """x [T, K], packed uint8 [N, K / 2] as reference.pack_int4 has it, scales float32 [N, K / G], zeros uint8 [N, K / G] (None: 8 everywhere) → [T, N].

    G is a power of two of at least 32.
    """
    (num_rows, size), (num_outputs, num_groups) = x.shape, scales.shape
    output = torch.empty((num_rows, num_outputs), dtype=x.dtype, device=x.device)
    config = launch_config("int4_matmul", row_class(num_rows), x.device)
    grid = (triton.cdiv(num_outputs, config["COLUMNS"]), triton.cdiv(num_rows, config["ROWS"]))
    _int4_kernel[grid](
        *(output, x, packed, scales, zeros, x.stride(0), num_rows, num_outputs),
        NUM_GROUPS=num_groups,
        GROUP_SIZE=size // num_groups,
        SYMMETRIC_ZERO=SYMMETRIC_ZERO,
        PRODUCT=product_dtype(x),
        **config,
    )
    return output
