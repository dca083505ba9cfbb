"""One tile of a matrix product over rows that lie anywhere: the part that logits, int8 and expert products share."""

import triton
import triton.language as tl


@triton.jit
def product(
    rows: tl.tensor,  # [ROWS], pointers to rows of x, SIZE each
    is_row: tl.tensor,
    columns: tl.tensor,  # [COLUMNS], pointers to rows of the weight, SIZE each
    is_column: tl.tensor,
    SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRODUCT: tl.constexpr,
) -> tl.tensor:
    """x · weightᵀ [ROWS, COLUMNS], both cast to PRODUCT, summed in float32 by steps of DEPTH from the first."""
    total = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    for start in range(0, SIZE, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        left = tl.load(rows[:, None] + depth[None, :], mask=is_row[:, None] & (depth < SIZE)[None, :], other=0).to(PRODUCT)
        right = tl.load(columns[None, :] + depth[:, None], mask=(depth < SIZE)[:, None] & is_column[None, :], other=0).to(PRODUCT)
        total = tl.dot(left, right, total, input_precision="ieee")
    return total


def row_class(num_rows: int) -> str:
    """Whether there are rows enough for tall tiles."""
    return "64" if num_rows > 32 else "*"
