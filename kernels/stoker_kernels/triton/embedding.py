"""Token ids to vectors, and chosen vectors to logits."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoker_kernels.triton.launch import launch_config, product_dtype
from stoker_kernels.triton.product import product, row_class


@triton.jit
def _embedding_kernel(
    output: tl.tensor,  # [T, size]
    token_ids: tl.tensor,
    weight: tl.tensor,  # [vocabulary, size]
    size: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(weight + tl.load(token_ids + token).to(tl.int64) * size + columns, mask=columns < size)
    tl.store(output + token * size + columns, values, mask=columns < size)


@triton.jit(do_not_specialize=["num_rows"])
def _logits_kernel(
    logits: tl.tensor,  # float32 [R, vocabulary]
    hidden: tl.tensor,  # [T, SIZE]
    rows: tl.tensor,  # [R]
    weight: tl.tensor,  # [vocabulary, SIZE]
    hidden_stride: tl.tensor,
    num_rows: tl.tensor,
    vocab_size: tl.tensor,
    SIZE: tl.constexpr,
    PRODUCT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
) -> None:
    to_rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    columns = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)
    is_row, is_column = to_rows < num_rows, columns < vocab_size
    from_rows = tl.load(rows + to_rows, mask=is_row, other=0).to(tl.int64)
    total = product(hidden + from_rows * hidden_stride, is_row, weight + columns * SIZE, is_column, SIZE, ROWS, COLUMNS, DEPTH, PRODUCT)
    tl.store(logits + to_rows[:, None].to(tl.int64) * vocab_size + columns[None, :], total, mask=is_row[:, None] & is_column[None, :])


def embedding(token_ids: Tensor, weight: Tensor) -> Tensor:
    """Rows of weight [vocabulary, H], contiguous, for token_ids [T], int32 or int64: [T, H]."""
    output = torch.empty((len(token_ids), weight.shape[1]), dtype=weight.dtype, device=weight.device)
    config = launch_config("embedding", "*", weight.device)
    _embedding_kernel[(len(token_ids), triton.cdiv(weight.shape[1], config["BLOCK"]))](output, token_ids, weight, weight.shape[1], **config)
    return output


def selected_logits(hidden: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
    """The logits of the chosen rows [R], int32 or int64, of hidden [T, H] alone: float32 [R, vocabulary] for weight [vocabulary, H], contiguous."""
    vocab_size, size = weight.shape
    logits = torch.empty((len(rows), vocab_size), dtype=torch.float32, device=hidden.device)
    config = launch_config("selected_logits", row_class(len(rows)), hidden.device)
    # Programs that share columns of the weight are neighbors.
    grid = (triton.cdiv(vocab_size, config["COLUMNS"]), triton.cdiv(len(rows), config["ROWS"]))
    _logits_kernel[grid](logits, hidden, rows, weight, hidden.stride(0), len(rows), vocab_size, SIZE=size, PRODUCT=product_dtype(hidden), **config)
    return logits
