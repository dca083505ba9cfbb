"""Sampler: logits → tokens. The order of operations is that of vLLM's v1 sampler, so that equal parameters mean equal distributions:

grammar; raw log probabilities; allowed tokens, bad words, min_tokens, logit bias; penalties; greedy choice; temperature; min_p; top_k; top_p; random pick.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stoker_engine.core.model_runner_output import NOT_FINITE, NOTHING_ALLOWED, OUT_OF_RANGE
from stoker_engine.protocol import LogprobsLists
from stoker_engine.sampling.grammar_mask import NO_BITMASKS, apply_bitmasks
from stoker_engine.sampling.logprobs import chosen_logprobs, top_logprobs
from stoker_engine.sampling.picker import Picked, Picker
from stoker_engine.sampling.sampling_metadata import SamplingMetadata
from stoker_engine.sampling.sampling_state import SamplingState


@dataclass(frozen=True, slots=True)
class SamplerOutput:
    """token_ids: [rows], meaningless in the rows of `failures`, which say why, and overwritten by the next call. `logprobs` and `failures` are by row."""

    token_ids: npt.NDArray[np.int64]
    logprobs: dict[int, LogprobsLists]
    failures: dict[int, str]


class Sampler:
    """Samples one token per row. A row's result depends on that row alone: not on the others, nor on how many there are."""

    def __init__(self, vocab_size: int, picker: Picker) -> None:
        """vocab_size: ids from there on, which no tokenizer can decode, don't exist for sampling, nor for log probabilities."""
        self._vocab_size = vocab_size
        self._picker = picker

    def sample(
        self, logits: Tensor, metadata: SamplingMetadata, positions: npt.NDArray[np.int64], bitmasks: Mapping[int, bytes] = NO_BITMASKS
    ) -> SamplerOutput:
        """logits: float32 [rows, ≥ vocab_size], which this call may change. positions: [rows], the index of the new token in its request: it keys the noise.

        bitmasks: what the grammars of some rows allow, by row.
        """
        if logits.shape[1] != self._vocab_size:
            logits = logits[:, : self._vocab_size]
        raw_max = self._picker.find_largest(logits, metadata) if bitmasks or metadata.changes_logits else None
        apply_bitmasks(logits, bitmasks)
        raw_logprobs = _raw_logprobs(logits, metadata.logprob_rows)
        if metadata.edits is not None:
            metadata.edits.apply(logits)
        if metadata.penalties is not None:
            metadata.penalties.apply(logits)
        picked = self._picker.pick(logits, metadata, positions)
        failures = _failures(picked, raw_max)
        if raw_logprobs is None:
            return SamplerOutput(picked.token_ids, {}, failures)
        token_ids = torch.from_numpy(picked.token_ids).to(logits.device)
        logprobs = _sampled_logprobs(raw_logprobs, token_ids, metadata.states, metadata.logprob_rows)
        return SamplerOutput(picked.token_ids, {row: lists for row, lists in logprobs.items() if row not in failures}, failures)


def _raw_logprobs(logits: Tensor, rows: tuple[int, ...]) -> Tensor | None:
    """float32 [len(rows), vocabulary]"""
    if not rows:
        return None
    return torch.log_softmax(logits if len(rows) == len(logits) else logits[list(rows)], dim=-1)


def _failures(picked: Picked, raw_max: npt.NDArray[np.float32] | None) -> dict[int, str]:
    """Why rows cannot be sampled; a maximum is NaN if any of its values is. raw_max: [rows], before the request's edits; None where there were none."""
    if raw_max is None:
        return {} if picked.all_finite else dict.fromkeys(np.flatnonzero(~np.isfinite(picked.largest)).tolist(), NOT_FINITE)
    bad = np.flatnonzero(~np.isfinite(raw_max) | ~np.isfinite(picked.largest)).tolist()
    edited = picked.largest
    return {row: NOT_FINITE if not np.isfinite(raw_max[row]) else NOTHING_ALLOWED if edited[row] == -np.inf else OUT_OF_RANGE for row in bad}


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
