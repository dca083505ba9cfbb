"""One token for each row of logits: min_p, top_k and top_p without a sort, and a draw by keyed noise. One program for a row; all passes stay on the device.

The draw is a race that the token with the largest weight ÷ noise wins. top_p is found backwards: the winner among all is taken if it is in the nucleus, which
one pass tells; if not, nothing at or below it in the order is either, and those above race again.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoker_kernels.triton.launch import launch_config
from stoker_kernels.triton.noise import exponential_noise

RACE_BLOCK = 256
"""Tokens in a block of the race of rows that nothing is cut from."""


@triton.jit
def _largest(logits: tl.tensor, vocab_size: tl.tensor, BLOCK: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """The largest logit, NaN if any is, and its first index."""
    columns = tl.arange(0, BLOCK)
    spoiled = tl.zeros([BLOCK], tl.int32)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    best_at = tl.zeros([BLOCK], tl.int64)
    for start in range(0, vocab_size, BLOCK):
        values = tl.load(logits + start + columns, mask=start + columns < vocab_size, other=float("-inf"))
        spoiled += (values != values).to(tl.int32)
        is_better = values > best
        best, best_at = tl.where(is_better, values, best), tl.where(is_better, start + columns, best_at)
    largest = tl.max(best, axis=0)
    first = tl.min(tl.where(best == largest, best_at, vocab_size - 1), axis=0)
    return tl.where(tl.sum(spoiled, axis=0) > 0, float("nan"), largest), first


@triton.jit
def _depths(logits: tl.tensor, columns: tl.tensor, vocab_size: tl.tensor, largest: tl.tensor, temperature: tl.tensor) -> tl.tensor:
    """How far each token lies below the largest, in units of temperature: 0 and more, infinite where it is masked or past the vocabulary."""
    values = tl.load(logits + columns, mask=columns < vocab_size, other=float("-inf"))
    return (largest - values) / temperature


@triton.jit
def _kth_depth(logits: tl.tensor, vocab_size: tl.tensor, largest: tl.tensor, temperature: tl.tensor, top_k: tl.tensor, BLOCK: tl.constexpr) -> tl.tensor:
    """The depth of the k-th largest, by 8 bits at a time: depths are not negative, so their bits are ordered as they are."""
    bins = tl.arange(0, 256)
    prefix, missing = top_k * 0, top_k
    for digit in tl.static_range(4):
        shift = 24 - 8 * digit
        counts = tl.zeros([256], tl.int32)
        for start in range(0, vocab_size, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            bits = _depths(logits, columns, vocab_size, largest, temperature).to(tl.int32, bitcast=True)
            is_open = (columns < vocab_size) & ((bits >> shift) >> 8 == prefix)
            counts += tl.histogram((bits >> shift) & 255, 256, mask=is_open)
        before = tl.cumsum(counts, axis=0)
        chosen = tl.sum((before < missing).to(tl.int32), axis=0)
        missing -= tl.sum(tl.where(bins < chosen, counts, 0), axis=0)
        prefix = prefix * 256 + chosen
    return prefix.to(tl.float32, bitcast=True)


@triton.jit
def _race(
    logits: tl.tensor,
    vocab_size: tl.tensor,
    largest: tl.tensor,
    temperature: tl.tensor,
    key: tl.tensor,
    max_depth: tl.tensor,
    bound_depth: tl.tensor,
    bound_id: tl.tensor,
    BLOCK: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """The token that wins among those of at most max_depth that come before (bound_depth, bound_id) in the order, and its depth; -1 if there is none."""
    best = tl.full([BLOCK], -1.0, tl.float32)
    best_at = tl.full([BLOCK], -1, tl.int64)
    for start in range(0, vocab_size, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        depths = _depths(logits, columns, vocab_size, largest, temperature)
        takes_part = (depths <= max_depth) & ((depths < bound_depth) | ((depths == bound_depth) & (columns < bound_id)))
        scores = tl.where(takes_part, tl.exp(-depths) / exponential_noise(key, columns.to(tl.int64)), -1.0)
        is_better = scores > best
        best, best_at = tl.where(is_better, scores, best), tl.where(is_better, columns, best_at)
    winner = tl.max(tl.where(best == tl.max(best, axis=0), best_at, -1), axis=0)
    return winner, (largest - tl.load(logits + winner, mask=winner >= 0, other=0.0)) / temperature


@triton.jit
def _weight_before(
    logits: tl.tensor,
    vocab_size: tl.tensor,
    largest: tl.tensor,
    temperature: tl.tensor,
    max_depth: tl.tensor,
    bound_depth: tl.tensor,
    bound_id: tl.tensor,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """Σ exp(−depth) over the tokens of at most max_depth that come before (bound_depth, bound_id) in the order."""
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, vocab_size, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        depths = _depths(logits, columns, vocab_size, largest, temperature)
        counts = (depths <= max_depth) & ((depths < bound_depth) | ((depths == bound_depth) & (columns < bound_id)))
        total += tl.where(counts, tl.exp(-depths), 0.0)
    return tl.sum(total.to(tl.float64), axis=0)


@triton.jit
def _race_of_blocks(
    logits: tl.tensor,
    vocab_size: tl.tensor,
    largest: tl.tensor,
    temperature: tl.tensor,
    key: tl.tensor,
    RACE_BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
) -> tl.tensor:
    """The winner in the block that wins among the blocks of the vocabulary."""
    inside = tl.arange(0, RACE_BLOCK)
    best = tl.full([BLOCKS], -1.0, tl.float32)
    best_at = tl.zeros([BLOCKS], tl.int64)
    for start in range(0, tl.cdiv(vocab_size, RACE_BLOCK), BLOCKS):
        blocks = start + tl.arange(0, BLOCKS)
        depths = _depths(logits, blocks[:, None] * RACE_BLOCK + inside[None, :], vocab_size, largest, temperature)
        scores = tl.sum(tl.exp(-depths), axis=1) / exponential_noise(key, -1 - blocks.to(tl.int64))
        is_better = scores > best
        best, best_at = tl.where(is_better, scores, best), tl.where(is_better, blocks, best_at)
    winner = tl.max(tl.where(best == tl.max(best, axis=0), best_at, 0), axis=0)
    columns = winner * RACE_BLOCK + inside
    scores = tl.exp(-_depths(logits, columns, vocab_size, largest, temperature)) / exponential_noise(key, columns)
    return winner * RACE_BLOCK + tl.argmax(scores, axis=0)


@triton.jit
def _sample_kernel(
    token_ids: tl.tensor,  # int64 [R]
    max_logits: tl.tensor,  # float32 [R]
    logits: tl.tensor,  # float32 [R, vocabulary]
    temperatures: tl.tensor,
    top_ks: tl.tensor,
    top_ps: tl.tensor,
    min_ps: tl.tensor,
    keys: tl.tensor,
    row_stride: tl.tensor,
    vocab_size: tl.tensor,
    RACE_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    largest, token_id = _largest(logits, vocab_size, BLOCK)
    temperature, key = tl.load(temperatures + row), tl.load(keys + row)
    top_k, top_p, min_p = tl.load(top_ks + row), tl.load(top_ps + row), tl.load(min_ps + row)
    has_top_k = (top_k > 0) & (top_k < vocab_size)
    if (temperature > 0) & (largest > float("-inf")) & (largest < float("inf")):
        if has_top_k | (top_p < 1) | (min_p > 0):
            # Any token's depth is less than this; a masked one's is not.
            max_depth = tl.where(min_p > 0, -tl.log(tl.maximum(min_p, 1e-38)), 3.0e38)
            if has_top_k:
                max_depth = tl.minimum(max_depth, _kth_depth(logits, vocab_size, largest, temperature, top_k, BLOCK))
            target = top_p.to(tl.float64) * float("inf")
            if top_p < 1:
                target = top_p.to(tl.float64) * _weight_before(logits, vocab_size, largest, temperature, max_depth, float("inf"), 0, BLOCK)
            winner, depth = _race(logits, vocab_size, largest, temperature, key, max_depth, float("inf"), 0, BLOCK)
            while (winner >= 0) & (_weight_before(logits, vocab_size, largest, temperature, max_depth, depth, winner, BLOCK) >= target):
                winner, depth = _race(logits, vocab_size, largest, temperature, key, max_depth, depth, winner, BLOCK)
            token_id = tl.where(winner >= 0, winner, token_id)
        else:
            token_id = _race_of_blocks(logits, vocab_size, largest, temperature, key, RACE_BLOCK, BLOCK // RACE_BLOCK)
    tl.store(token_ids + row, token_id)
    tl.store(max_logits + row, largest)


def sample(logits: Tensor, temperatures: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """One token id for each row of logits, float32 [R, vocabulary], and its largest logit, NaN where any is: int64 [R], float32 [R].

    temperatures, top_p, min_p: float32 [R], 0, 1 and 0 are off; top_k: int32 [R], 0 or ≥ vocabulary is off; keys: int64 [R], of the row's request and
    position. The token of a row whose largest logit is not finite means nothing.
    """
    token_ids = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    max_logits = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    config = launch_config("sample", "*", logits.device)
    _sample_kernel[(len(logits),)](
        *(token_ids, max_logits, logits, temperatures, top_k, top_p, min_p, keys, logits.stride(0), logits.shape[1]),
        RACE_BLOCK=RACE_BLOCK,
        **config,
    )
    return token_ids, max_logits
