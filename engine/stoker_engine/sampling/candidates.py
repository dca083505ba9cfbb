"""min_p, top_k and top_p on the few tokens that can survive them.

Sorting a vocabulary costs milliseconds per row. A lower bound for what survives leaves some hundred candidates, found in one pass; the rules
themselves then run on these, exactly.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from stoker_engine.sampling.device_ops import indices_at_least, sort_descending

TOP_K_OFF = 2**31
_BLOCK = 64
"""Tokens in a block of the vocabulary, whose maxima bound the k-th largest value from below."""
_BINS_PER_UNIT = 16
_NUM_BINS = 512
_NEVER = 700.0
"""A token this far below the largest logit has a probability under 1e-304: it isn't a candidate, nor is a masked one."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """The rows' parameters, on the logits' device, [rows] each.

    top_k: int64, below the vocabulary's size or TOP_K_OFF; top_p: float64, 1 is off; min_p: float32, 0 is off. `cuts_first`: bool, whether top_k or
    min_p is on. `max_top_k`: the largest top_k that is on, 0 if none is.
    """

    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    cuts_first: Tensor
    all_cut_first: bool
    max_top_k: int


@dataclass(frozen=True, slots=True)
class Candidates:
    """A superset of each row's survivors, by ascending token id; the columns past a row's own have logit −inf and weight 0.

    logits: float32, the row's largest 0; token_ids: int64; weights: float64, exp(logit); [rows, columns].
    total_weights: float64 [rows], over the whole vocabulary; meaningless in rows that cut first.
    """

    logits: Tensor
    token_ids: Tensor
    weights: Tensor
    total_weights: Tensor


@dataclass(frozen=True, slots=True)
class _Found:
    """Candidates of all rows in one list, by row, then by token id."""

    rows: Tensor
    token_ids: Tensor
    logits: Tensor


def find_candidates(logits: Tensor, truncation: Truncation) -> Candidates:
    """logits: float32 [rows, vocabulary], divided by temperature, the largest of each row exactly 0: it is always among the candidates."""
    total_weights = torch.ones_like(truncation.top_p) if truncation.all_cut_first else _total_weights(logits)
    found = _at_least(logits, _lower_bounds(logits, total_weights, truncation))
    if not truncation.all_cut_first:
        found = _drop_below_nucleus(found, truncation.top_p * total_weights, truncation.cuts_first)
    counts = torch.bincount(found.rows, minlength=len(logits))
    places = torch.arange(len(found.rows), device=logits.device) - (counts.cumsum(0) - counts)[found.rows]
    shape = (len(logits), int(counts.max()))
    token_ids = torch.zeros(shape, dtype=torch.int64, device=logits.device)
    token_ids[found.rows, places] = found.token_ids
    values = torch.full(shape, -torch.inf, device=logits.device)
    values[found.rows, places] = found.logits
    return Candidates(values, token_ids, values.double().exp(), total_weights)


def survivors(candidates: Candidates, truncation: Truncation) -> Tensor:
    """Which candidates min_p, then top_k (with ties), then top_p (at least one) keep: bool [rows, columns].

    top_p keeps a token if those before it have less than top_p of what min_p and top_k left; among equal logits the smaller token id comes first.
    """
    descending = sort_descending(candidates.logits)
    kth = descending.gather(1, truncation.top_k.clamp(max=descending.shape[1])[:, None] - 1)
    kept = (descending >= kth) & (descending >= truncation.min_p.log()[:, None]) & (descending > -torch.inf)
    weights = descending.double().exp().masked_fill_(~kept, 0.0)
    cumulative = weights.cumsum(dim=1)
    totals = torch.where(truncation.cuts_first, cumulative[:, -1], candidates.total_weights)
    kept &= (cumulative - weights < (truncation.top_p * totals)[:, None]) | (truncation.top_p >= 1.0)[:, None]
    return _mark_largest(candidates.logits, descending, kept.sum(dim=1, keepdim=True))


def _mark_largest(logits: Tensor, descending: Tensor, num_kept: Tensor) -> Tensor:
    """Marks each row's `num_kept` largest logits, the earlier ones of equals. descending: the same logits, sorted; num_kept: [rows, 1], above 0."""
    smallest = descending.gather(1, num_kept - 1)
    larger, equal = logits > smallest, logits == smallest
    return larger | (equal & (equal.cumsum(dim=1) <= num_kept - larger.sum(dim=1, keepdim=True)))


def _total_weights(logits: Tensor) -> Tensor:
    """Σ exp(logit − largest) of each row: 1 ÷ the largest probability. softmax is one fused pass with the same bits for a row in any batch."""
    return torch.softmax(logits, dim=-1).amax(dim=-1).double().reciprocal()


def _lower_bounds(logits: Tensor, total_weights: Tensor, truncation: Truncation) -> Tensor:
    """For each row a value that no survivor is below, at most 0. [rows]"""
    bounds = truncation.min_p.log().clamp(min=-_NEVER)
    if truncation.max_top_k:
        bounds = torch.maximum(bounds, _top_k_bounds(logits, truncation))
    # Tokens under (1 − top_p) ÷ vocabulary have less than 1 − top_p together, so top_p reaches none of them: unless something is cut
    # first, for then top_p counts from what is left. The margin covers rounding.
    nucleus = ((1.0 - truncation.top_p) / logits.shape[1] * total_weights).log() - 1e-3
    return torch.where(truncation.cuts_first, bounds, torch.maximum(bounds, nucleus.float())).clamp_(max=0.0)


def _at_least(logits: Tensor, bounds: Tensor) -> _Found:
    rows, token_ids = indices_at_least(logits, bounds)
    return _Found(rows, token_ids, logits[rows, token_ids])


def _drop_below_nucleus(found: _Found, target_weights: Tensor, cuts_first: Tensor) -> _Found:
    """Leaves of each row the candidates down to the bin of logits in which the target weight is reached: top_p takes none below.

    A row in which something cuts first keeps all.
    A text that is hard to foresee has thousands of tokens above the bound, of which top_p 0.95 takes 50 to 1,500: this pass is what keeps the sort small.
    """
    depths = -found.logits
    bins = (depths * _BINS_PER_UNIT).long().clamp_(max=_NUM_BINS - 1)
    weights = torch.bincount(found.rows * _NUM_BINS + bins, weights=depths.double().neg_().exp_(), minlength=len(cuts_first) * _NUM_BINS)
    num_before = (weights.view(-1, _NUM_BINS).cumsum(dim=1) < target_weights[:, None] * (1 + 1e-9)).sum(dim=1)
    # The last bin has no lower end.
    last_bins = num_before.masked_fill_(cuts_first | (num_before >= _NUM_BINS - 1), _NUM_BINS)
    kept = (bins <= last_bins[found.rows]).nonzero().squeeze(1)
    return _Found(found.rows[kept], found.token_ids[kept], found.logits[kept])


def _top_k_bounds(logits: Tensor, truncation: Truncation) -> Tensor:
    """The k-th largest maximum of a block, as k blocks have a value that large; with fewer blocks, the k-th largest logit itself. −inf without top_k."""
    missing = -logits.shape[1] % _BLOCK
    maxima = (pad(logits, (0, missing), value=-torch.inf) if missing else logits).view(len(logits), -1, _BLOCK).amax(dim=-1)
    source = maxima if truncation.max_top_k <= maxima.shape[1] else logits
    largest = source.topk(truncation.max_top_k, dim=-1).values
    bounds = largest.gather(1, truncation.top_k.clamp(max=truncation.max_top_k)[:, None] - 1).squeeze(1)
    return bounds.masked_fill_(truncation.top_k == TOP_K_OFF, -torch.inf)
