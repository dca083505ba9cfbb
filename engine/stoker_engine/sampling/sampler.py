"""Sampler: logits → tokens. The order of operations is that of vLLM's v1 sampler, so that equal parameters mean equal distributions:

grammar; raw log probabilities; allowed tokens, bad words, min_tokens, logit bias; penalties; greedy choice; temperature; min_p; top_k; top_p; random pick.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stoker_engine.core.model_runner_output import NOT_FINITE
from stoker_engine.protocol import LogprobsLists
from stoker_engine.sampling.candidates import find_candidates, survivors
from stoker_engine.sampling.device_ops import argmax
from stoker_engine.sampling.draw import draw_from_candidates, draw_from_vocabulary
from stoker_engine.sampling.grammar_mask import NO_BITMASKS, apply_bitmasks
from stoker_engine.sampling.logprobs import chosen_logprobs, top_logprobs
from stoker_engine.sampling.noise import position_keys
from stoker_engine.sampling.sampling_metadata import RandomRows, SamplingMetadata
from stoker_engine.sampling.sampling_state import SamplingState

NOTHING_ALLOWED = "no token is allowed: the request's restrictions exclude the whole vocabulary"
OUT_OF_RANGE = "the request's penalties take the model's logits out of the range of float32"


@dataclass(frozen=True, slots=True)
class SamplerOutput:
    """token_ids: [rows], meaningless in the rows of `failures`, which say why. `logprobs` and `failures` are by row."""

    token_ids: npt.NDArray[np.int64]
    logprobs: dict[int, LogprobsLists]
    failures: dict[int, str]


class Sampler:
    """Samples one token per row. A row's result depends on that row alone: not on the others, nor on how many there are."""

    def __init__(self, vocab_size: int) -> None:
        """vocab_size: ids from there on, which no tokenizer can decode, don't exist for sampling, nor for log probabilities."""
        self._vocab_size = vocab_size

    def sample(
        self, logits: Tensor, metadata: SamplingMetadata, positions: npt.NDArray[np.int64], bitmasks: Mapping[int, bytes] = NO_BITMASKS
    ) -> SamplerOutput:
        """logits: [rows, ≥ vocab_size], which this call may change. positions: [rows], the index of the new token in its request: it keys the noise.

        bitmasks: what the grammars of some rows allow, by row.
        """
        logits = logits[:, : self._vocab_size].float()
        is_edited = bool(bitmasks) or metadata.edits is not None or metadata.penalties is not None
        raw_max = logits.amax(dim=-1) if is_edited else None
        apply_bitmasks(logits, bitmasks)
        raw_logprobs = _raw_logprobs(logits, metadata.logprob_rows)
        if metadata.edits is not None:
            metadata.edits.apply(logits)
        if metadata.penalties is not None:
            metadata.penalties.apply(logits)
        token_ids = argmax(logits)
        max_logits = logits.gather(1, token_ids[:, None]).squeeze(1)
        failures = _failures(max_logits if raw_max is None else raw_max, max_logits)
        if failures:
            # A row of zeros can be sampled without harm; its token is not used.
            logits[list(failures)], max_logits[list(failures)] = 0.0, 0.0
        for random_rows in metadata.random_rows:
            token_ids[torch.from_numpy(random_rows.rows)] = _draw(logits, max_logits, random_rows, positions)
        logprobs = _sampled_logprobs(raw_logprobs, token_ids, metadata.states, metadata.logprob_rows) if raw_logprobs is not None else {}
        return SamplerOutput(token_ids.cpu().numpy(), {row: lists for row, lists in logprobs.items() if row not in failures}, failures)


def _raw_logprobs(logits: Tensor, rows: tuple[int, ...]) -> Tensor | None:
    """float32 [len(rows), vocabulary]"""
    if not rows:
        return None
    return torch.log_softmax(logits if len(rows) == len(logits) else logits[list(rows)], dim=-1)


def _failures(raw_max: Tensor, max_logits: Tensor) -> dict[int, str]:
    """Why rows cannot be sampled; a maximum is NaN if any of its values is. raw_max: before the request's edits, max_logits: after them, [rows]."""
    raw, edited = raw_max.cpu().numpy(), max_logits.cpu().numpy()
    bad = np.flatnonzero(~np.isfinite(raw) | ~np.isfinite(edited)).tolist()
    return {row: NOT_FINITE if not np.isfinite(raw[row]) else NOTHING_ALLOWED if edited[row] == -np.inf else OUT_OF_RANGE for row in bad}


def _draw(logits: Tensor, max_logits: Tensor, random_rows: RandomRows, positions: npt.NDArray[np.int64]) -> Tensor:
    """Token ids of the random rows, int64 [rows]. logits: [all rows, vocabulary], which this call may change; max_logits: the largest of each, finite."""
    if random_rows.index is not None:
        logits, max_logits = logits[random_rows.index], max_logits[random_rows.index]
    # The largest becomes 0 before the division, so that no temperature can make it overflow.
    logits = logits.sub_(max_logits[:, None]).div_(random_rows.temperatures)
    keys = position_keys(random_rows.noise_keys, positions[random_rows.rows]).to(logits.device)
    if random_rows.truncation is None:
        return draw_from_vocabulary(torch.softmax(logits, dim=-1), keys)
    candidates = find_candidates(logits, random_rows.truncation)
    return draw_from_candidates(candidates, survivors(candidates, random_rows.truncation), keys)


def _sampled_logprobs(raw_logprobs: Tensor, token_ids: Tensor, states: Sequence[SamplingState], rows: tuple[int, ...]) -> dict[int, LogprobsLists]:
    """One position's lists for each of `rows`. Rows that ask for equally many are done together."""
    by_count: dict[int, list[int]] = {}
    result: dict[int, LogprobsLists] = {}
    for place, row in enumerate(rows):
        params = states[row].params
        if params.logprob_token_ids is not None:
            result[row] = chosen_logprobs(raw_logprobs[place : place + 1], token_ids[row : row + 1], params.logprob_token_ids)
        else:
            by_count.setdefault(params.logprobs or 0, []).append(place)
    for count, places in by_count.items():
        same = raw_logprobs if len(places) == len(raw_logprobs) else raw_logprobs[places]
        lists = top_logprobs(same, token_ids[[rows[place] for place in places]], count)
        for i, place in enumerate(places):
            result[rows[place]] = LogprobsLists(lists.token_ids[i : i + 1], lists.logprobs[i : i + 1], lists.ranks[i : i + 1])
    return result
