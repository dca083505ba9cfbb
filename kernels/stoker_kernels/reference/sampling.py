"""From logits to a token: penalties, temperature, min_p, top_k, top_p, and a draw whose noise is a function of a key and a token id.

The draw is an exponential race: argmax of weight ÷ Exp(1) noise takes each token with its probability. The noise is SplitMix64 (Steele, Lea and Flood 2014):
a counter times an odd constant plus the key, then a bijective mix of 64 bits.
"""

import torch
from torch import Tensor

BLOCK = 256
"""Tokens in a block of the vocabulary: a row that nothing is cut from races among blocks first, whose counters are −1, −2, …, then inside the winner."""

_GOLDEN, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15 - (1 << 64), 0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64)


def apply_penalties(logits: Tensor, token_ids: Tensor, output_counts: Tensor, starts: Tensor, strengths: Tensor) -> None:
    """Changes logits, float32 [R, vocabulary], in place, at the tokens that each row has seen.

    Row r has seen token_ids[starts[r]:starts[r + 1]], no token twice, and has put out each output_counts times. strengths [R, 3]: repetition divides a positive
    logit and multiplies another; then frequency × count is taken off, then presence where the count is above 0.
    """
    for row, (repetition, frequency, presence) in enumerate(strengths.tolist()):
        seen = slice(int(starts[row]), int(starts[row + 1]))
        values, counts = logits[row, token_ids[seen].long()], output_counts[seen]
        values = torch.where(values > 0, values / repetition, values * repetition)
        values = values - frequency * counts
        logits[row, token_ids[seen].long()] = values - presence * (counts > 0)


def sample(logits: Tensor, temperatures: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """One token id for each row of logits, float32 [R, vocabulary], and its largest logit, NaN where any is: int64 [R], float32 [R].

    temperatures [R]: 0 takes the first of the largest. top_k int32: 0 or ≥ vocabulary is off; top_p: 1 is off; min_p: 0 is off. keys int64: of the row's
    request and position. min_p and top_k (with ties) cut first; top_p then keeps a token if those before it have less than top_p of what is left, the smaller
    token id first among equals. The token of a row whose largest logit is not finite means nothing.
    """
    token_ids = [_sample_row(*row) for row in zip(logits, temperatures.tolist(), top_k.tolist(), top_p.tolist(), min_p.tolist(), keys, strict=True)]
    return torch.tensor(token_ids, dtype=torch.int64, device=logits.device), logits.amax(dim=1)


def _sample_row(logits: Tensor, temperature: float, top_k: int, top_p: float, min_p: float, key: Tensor) -> int:
    if temperature == 0 or not logits.max().isfinite():
        return int(logits.argmax())
    scaled = (logits - logits.max()) / torch.tensor(temperature, dtype=torch.float32, device=logits.device)
    has_top_k = 0 < top_k < len(logits)
    if not has_top_k and top_p >= 1 and min_p <= 0:
        return _race_of_blocks(scaled, key)
    weights = scaled.double().exp()
    kept = scaled > -torch.inf
    if min_p > 0:
        kept &= scaled >= torch.tensor(min_p, dtype=torch.float32, device=logits.device).log()
    if has_top_k:
        kept &= scaled >= scaled.topk(top_k).values[-1]
    if top_p < 1:
        order = scaled.argsort(descending=True, stable=True)
        left = (weights * kept)[order]
        kept[order] &= left.cumsum(0) - left < top_p * left.sum()
    token_ids = kept.nonzero().squeeze(1)
    return int(token_ids[(weights[token_ids] / exponential_noise(key, token_ids)).argmax()])


def _race_of_blocks(scaled: Tensor, key: Tensor) -> int:
    padded = torch.nn.functional.pad(scaled.softmax(0), (0, -len(scaled) % BLOCK)).view(-1, BLOCK).double()
    block_ids = torch.arange(len(padded), device=scaled.device)
    winner = int((padded.sum(1) / exponential_noise(key, -1 - block_ids)).argmax())
    token_ids = winner * BLOCK + torch.arange(BLOCK, device=scaled.device)
    return int(token_ids[(padded[winner] / exponential_noise(key, token_ids)).argmax()])


def exponential_noise(key: Tensor, counters: Tensor) -> Tensor:
    """Exp(1) noise, float64, above 0. key and counters: int64, broadcast against each other."""
    mixed = key + (counters + 1) * _GOLDEN
    mixed = (mixed ^ _shift_right(mixed, 30)) * _MIX_1
    mixed = (mixed ^ _shift_right(mixed, 27)) * _MIX_2
    mixed = mixed ^ _shift_right(mixed, 31)
    # 52 bits, in the middle of their interval: never 0 or 1.
    return -((_shift_right(mixed, 12).double() + 0.5) * 2.0**-52).log()


def _shift_right(values: Tensor, bits: int) -> Tensor:
    """A logical shift of 64 bits."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)
