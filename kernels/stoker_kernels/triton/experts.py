"""Products of tokens with the weights of their experts, one launch for all experts, and the weighted sum over a token's experts."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoker_kernels.triton.launch import launch_config, padded_size, product_dtype
from stoker_kernels.triton.product import product, row_class
from stoker_kernels.triton.routing import ExpertOrder


@triton.jit
def _grouped_matmul_kernel(
    output: tl.tensor,  # [P, num_outputs]
    x: tl.tensor,  # [P / pairs_per_row, SIZE]
    weight: tl.tensor,  # [NUM_EXPERTS, num_outputs, SIZE]
    pairs: tl.tensor,  # [P], by expert
    starts: tl.tensor,  # [NUM_EXPERTS + 1]
    x_stride: tl.tensor,
    pairs_per_row: tl.tensor,
    num_outputs: tl.tensor,
    NUM_EXPERTS: tl.constexpr,
    PADDED_EXPERTS: tl.constexpr,
    SIZE: tl.constexpr,
    PRODUCT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
) -> None:
    # How many tiles an expert has only the device knows: every program looks for its own.
    experts = tl.arange(0, PADDED_EXPERTS)
    counts = tl.load(starts + experts + 1, mask=experts < NUM_EXPERTS, other=0) - tl.load(starts + experts, mask=experts < NUM_EXPERTS, other=0)
    tiles = (counts + ROWS - 1) // ROWS
    tiles_until = tl.cumsum(tiles, axis=0)
    expert = tl.sum((tiles_until <= tl.program_id(0)).to(tl.int32), axis=0).to(tl.int64)
    if expert < NUM_EXPERTS:
        tile = tl.program_id(0) - tl.sum(tl.where(experts == expert, tiles_until - tiles, 0), axis=0)
        places = tl.load(starts + expert) + tile * ROWS + tl.arange(0, ROWS)
        is_row = places < tl.load(starts + expert + 1)
        rows = tl.load(pairs + places, mask=is_row, other=0).to(tl.int64)
        columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        is_column = columns < num_outputs
        from_rows, from_columns = x + rows // pairs_per_row * x_stride, weight + (expert * num_outputs + columns) * SIZE
        total = product(from_rows, is_row, from_columns, is_column, SIZE, ROWS, COLUMNS, DEPTH, PRODUCT)
        tl.store(output + rows[:, None] * num_outputs + columns[None, :], total.to(output.dtype.element_ty), mask=is_row[:, None] & is_column[None, :])


@triton.jit
def _combine_kernel(
    output: tl.tensor,  # [T, size]
    outputs: tl.tensor,  # [T · NUM_CHOSEN, size]
    weights: tl.tensor,  # float32 [T, NUM_CHOSEN]
    size: tl.tensor,
    NUM_CHOSEN: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for place in tl.static_range(NUM_CHOSEN):
        pair = token * NUM_CHOSEN + place
        total += tl.load(weights + pair) * tl.load(outputs + pair * size + columns, mask=columns < size, other=0.0).to(tl.float32)
    tl.store(output + token * size + columns, total.to(output.dtype.element_ty), mask=columns < size)


def grouped_matmul(x: Tensor, weight: Tensor, order: ExpertOrder) -> Tensor:
    """x [P / n, K], n pairs to a row (pair p reads row p // n), weight [experts, N, K], contiguous → [P, N]."""
    num_pairs, (num_experts, num_outputs, size) = len(order.pairs), weight.shape
    output = torch.empty((num_pairs, num_outputs), dtype=x.dtype, device=x.device)
    config = launch_config("grouped_matmul", row_class(num_pairs // num_experts), x.device)
    max_tiles = num_pairs // config["ROWS"] + min(num_experts, num_pairs)
    _grouped_matmul_kernel[(max_tiles, triton.cdiv(num_outputs, config["COLUMNS"]))](
        *(output, x, weight, order.pairs, order.starts, x.stride(0), num_pairs // max(len(x), 1), num_outputs),
        NUM_EXPERTS=num_experts,
        PADDED_EXPERTS=padded_size(num_experts),
        SIZE=size,
        PRODUCT=product_dtype(x),
        **config,
    )
    return output


def combine_experts(outputs: Tensor, weights: Tensor) -> Tensor:
    """Σ weight · output over each token's experts: outputs [T · n, H], contiguous, weights float32 [T, n] → [T, H]."""
    num_tokens, num_chosen = weights.shape
    size = outputs.shape[1]
    output = torch.empty((num_tokens, size), dtype=outputs.dtype, device=outputs.device)
    config = launch_config("combine_experts", "*", outputs.device)
    _combine_kernel[(num_tokens, triton.cdiv(size, config["BLOCK"]))](output, outputs, weights, size, NUM_CHOSEN=num_chosen, **config)
    return output
