"""One tile of query rows against a range of a request's keys: the part that decodes and prefill chunks share."""

import torch
import triton
import triton.language as tl

MIN_SIDE = 16
"""Of the smallest matrix product."""


@triton.jit
def attend(
    query: tl.tensor,  # [M, PADDED_DIM]
    positions: tl.tensor,  # [M], the last key that a row sees; -1 where it sees none
    keys: tl.tensor,  # pointer to the head's key of slot 0; its value lies VALUE_OFFSET after it, the next slot twice that
    block_ids: tl.tensor,  # pointer to those of the request
    first_key: tl.tensor,
    end_key: tl.tensor,
    scale: tl.tensor,
    SOFT_CAP: tl.constexpr,
    WINDOW: tl.constexpr,
    VALUE_OFFSET: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    PRODUCT: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Σ exp(score − largest) · value [M, PADDED_DIM], the largest score [M] and Σ exp(score − largest) [M], in float32.

    The keys are taken by tiles of TILE from first_key on; a tile in which a row sees nothing leaves it as it was, bit for bit.
    """
    dims = tl.arange(0, PADDED_DIM)
    attended = tl.zeros_like(query).to(tl.float32)
    total = tl.sum(attended, axis=1)
    largest = total - float("inf")
    for start in range(first_key, end_key, TILE):
        key_positions = start + tl.arange(0, TILE)
        # Slots past the request's last token may hold another's NaN, which no weight of 0 takes out of a sum: they are not read.
        is_key = key_positions < end_key
        blocks = tl.load(block_ids + key_positions // BLOCK_SIZE, mask=is_key, other=0).to(tl.int64)
        slots = (blocks * BLOCK_SIZE + key_positions % BLOCK_SIZE) * (2 * VALUE_OFFSET)
        key_tile = tl.load(keys + slots[None, :] + dims[:, None], mask=is_key[None, :] & (dims < HEAD_DIM)[:, None], other=0.0)
        scores = tl.dot(query, key_tile.to(PRODUCT), input_precision="ieee") * scale
        if SOFT_CAP > 0:
            # tanh by a power of a negative number, which can't overflow.
            shrunk = tl.exp(tl.abs(scores) * (-2.0 / SOFT_CAP))
            scores = tl.where(scores < 0, -SOFT_CAP, SOFT_CAP) * (1.0 - shrunk) / (1.0 + shrunk)
        is_visible = key_positions[None, :] <= positions[:, None]
        if WINDOW > 0:
            is_visible = is_visible & (key_positions[None, :] > positions[:, None] - WINDOW)
        scores = tl.where(is_visible, scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        weights = tl.exp(scores - shift[:, None])
        kept = tl.exp(largest - shift)
        total = total * kept + tl.sum(weights, axis=1)
        value_tile = tl.load(keys + VALUE_OFFSET + slots[:, None] + dims[None, :], mask=is_key[:, None] & (dims < HEAD_DIM)[None, :], other=0.0)
        attended = tl.dot(weights.to(PRODUCT), value_tile.to(PRODUCT), attended * kept[:, None], input_precision="ieee")
        largest = new_largest
    return attended, largest, total


@triton.jit
def add_sinks(attended: tl.tensor, largest: tl.tensor, total: tl.tensor, sinks: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """attended [M, N] and total [M] after a logit of each row, sinks [M], joins its softmax without a value."""
    shift = tl.maximum(largest, sinks)
    kept = tl.exp(largest - shift)
    return attended * kept[:, None], total * kept + tl.exp(sinks - shift)


@triton.jit
def normalize(attended: tl.tensor, total: tl.tensor) -> tl.tensor:
    """attended [M, N] ÷ total [M]; 0 in rows that saw nothing."""
    return attended / tl.where(total == 0.0, 1.0, total)[:, None]


def attention_class(dtype: torch.dtype, padded_dim: int) -> str:
    """The class of shape in the launch table: products of float32 have no tensor cores, and keep more in registers."""
    return "float32" if dtype == torch.float32 else str(padded_dim)
