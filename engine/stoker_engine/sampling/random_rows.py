"""RandomRows: the rows of a batch that are drawn the same way, their parameters as tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stoker_engine.sampling.candidates import TOP_K_OFF, Truncation
from stoker_engine.sampling.picker import has_top_k
from stoker_engine.sampling.sampling_state import SamplingState
from stoker_engine.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class RandomRows:
    """`index` is None where they are the whole batch; temperatures: [rows, 1]; `truncation` is None where all is off."""

    rows: npt.NDArray[np.int64]
    index: Tensor | None
    temperatures: Tensor
    noise_keys: npt.NDArray[np.uint64]
    truncation: Truncation | None


def find_random_rows(states: Sequence[SamplingState], vocab_size: int, device: torch.device) -> tuple[RandomRows, ...]:
    """Those from which nothing is cut, and the others. Rows in neither are greedy."""
    plain = [row for row, state in enumerate(states) if not state.params.greedy and not _is_truncated(state.params, vocab_size)]
    truncated = [row for row, state in enumerate(states) if not state.params.greedy and _is_truncated(state.params, vocab_size)]
    random_rows = []
    if plain:
        random_rows.append(_random_rows(plain, states, None, device))
    if truncated:
        random_rows.append(_random_rows(truncated, states, _truncation([states[row].params for row in truncated], vocab_size, device), device))
    return tuple(random_rows)


def _is_truncated(params: SamplingParams, vocab_size: int) -> bool:
    return params.top_p < 1.0 or params.min_p > 0.0 or has_top_k(params, vocab_size)


def _random_rows(rows: list[int], states: Sequence[SamplingState], truncation: Truncation | None, device: torch.device) -> RandomRows:
    return RandomRows(
        rows=np.array(rows, dtype=np.int64),
        index=None if len(rows) == len(states) else torch.tensor(rows, device=device),
        temperatures=torch.tensor([[states[row].params.temperature] for row in rows], dtype=torch.float32, device=device),
        noise_keys=np.array([states[row].noise_key for row in rows], dtype=np.uint64),
        truncation=truncation,
    )


def _truncation(params: list[SamplingParams], vocab_size: int, device: torch.device) -> Truncation:
    top_k = [p.top_k if has_top_k(p, vocab_size) else TOP_K_OFF for p in params]
    cuts_first = [k != TOP_K_OFF or p.min_p > 0.0 for k, p in zip(top_k, params, strict=True)]
    return Truncation(
        top_k=torch.tensor(top_k, dtype=torch.int64, device=device),
        top_p=torch.tensor([p.top_p for p in params], dtype=torch.float64, device=device),
        min_p=torch.tensor([p.min_p for p in params], dtype=torch.float32, device=device),
        cuts_first=torch.tensor(cuts_first, device=device),
        all_cut_first=all(cuts_first),
        max_top_k=max((k for k in top_k if k != TOP_K_OFF), default=0),
    )
