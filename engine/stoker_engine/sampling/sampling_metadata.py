"""SamplingMetadata: a batch's parameters as tensors, built when the batch changes and used until it changes again."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stoker_engine.sampling.candidates import TOP_K_OFF, Truncation
from stoker_engine.sampling.logit_edits import LogitEdits
from stoker_engine.sampling.penalties import Penalties
from stoker_engine.sampling.sampling_state import SamplingState
from stoker_engine.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class RandomRows:
    """Rows that are drawn the same way. `index` is None where they are the whole batch; temperatures: [rows, 1]; `truncation` is None where all is off."""

    rows: npt.NDArray[np.int64]
    index: Tensor | None
    temperatures: Tensor
    noise_keys: npt.NDArray[np.uint64]
    truncation: Truncation | None


@dataclass(frozen=True, slots=True)
class SamplingMetadata:
    """Rows in neither member of `random_rows` are greedy. `edits` and `penalties` are None where no row has any."""

    states: tuple[SamplingState, ...]
    edits: LogitEdits | None
    penalties: Penalties | None
    random_rows: tuple[RandomRows, ...]
    logprob_rows: tuple[int, ...]


def build_sampling_metadata(states: Sequence[SamplingState], vocab_size: int, device: torch.device) -> SamplingMetadata:
    edits = LogitEdits(states, vocab_size, device)
    plain = [row for row, state in enumerate(states) if not state.params.greedy and not _is_truncated(state.params, vocab_size)]
    truncated = [row for row, state in enumerate(states) if not state.params.greedy and _is_truncated(state.params, vocab_size)]
    random_rows = []
    if plain:
        random_rows.append(_random_rows(plain, states, None, device))
    if truncated:
        random_rows.append(_random_rows(truncated, states, _truncation([states[row].params for row in truncated], vocab_size, device), device))
    return SamplingMetadata(
        states=tuple(states),
        edits=None if edits.is_empty else edits,
        penalties=_penalties(states),
        random_rows=tuple(random_rows),
        logprob_rows=tuple(row for row, state in enumerate(states) if state.params.logprobs is not None or state.params.logprob_token_ids is not None),
    )


def _is_truncated(params: SamplingParams, vocab_size: int) -> bool:
    return params.top_p < 1.0 or params.min_p > 0.0 or _has_top_k(params, vocab_size)


def _has_top_k(params: SamplingParams, vocab_size: int) -> bool:
    return 0 < params.top_k < vocab_size


def _random_rows(rows: list[int], states: Sequence[SamplingState], truncation: Truncation | None, device: torch.device) -> RandomRows:
    return RandomRows(
        rows=np.array(rows, dtype=np.int64),
        index=None if len(rows) == len(states) else torch.tensor(rows, device=device),
        temperatures=torch.tensor([[states[row].params.temperature] for row in rows], dtype=torch.float32, device=device),
        noise_keys=np.array([states[row].noise_key for row in rows], dtype=np.uint64),
        truncation=truncation,
    )


def _truncation(params: list[SamplingParams], vocab_size: int, device: torch.device) -> Truncation:
    top_k = [p.top_k if _has_top_k(p, vocab_size) else TOP_K_OFF for p in params]
    cuts_first = [k != TOP_K_OFF or p.min_p > 0.0 for k, p in zip(top_k, params, strict=True)]
    return Truncation(
        top_k=torch.tensor(top_k, dtype=torch.int64, device=device),
        top_p=torch.tensor([p.top_p for p in params], dtype=torch.float64, device=device),
        min_p=torch.tensor([p.min_p for p in params], dtype=torch.float32, device=device),
        cuts_first=torch.tensor(cuts_first, device=device),
        all_cut_first=all(cuts_first),
        max_top_k=max((k for k in top_k if k != TOP_K_OFF), default=0),
    )


def _penalties(states: Sequence[SamplingState]) -> Penalties | None:
    rows = [(row, state, state.token_counts) for row, state in enumerate(states) if state.token_counts is not None]
    if not rows:
        return None
    strengths = [(s.params.repetition_penalty, s.params.frequency_penalty, s.params.presence_penalty) for _, s, _ in rows]
    return Penalties([row for row, _, _ in rows], [counts for _, _, counts in rows], strengths)
