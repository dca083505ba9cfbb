"""The rules that forbid tokens or move their logits: allowed_token_ids, bad_words, min_tokens, logit_bias, in this order."""

from collections.abc import Sequence

import torch
from torch import Tensor

from stoker_engine.sampling.sampling_state import SamplingState


class LogitEdits:
    """The edits of a batch's rows, as long as the batch stays the same; bad words and min_tokens follow each row's output."""

    def __init__(self, states: Sequence[SamplingState], vocab_size: int, device: torch.device) -> None:
        self._allowed = [
            (row, torch.tensor([i for i in state.params.allowed_token_ids if 0 <= i < vocab_size], dtype=torch.int64, device=device))
            for row, state in enumerate(states)
            if state.params.allowed_token_ids is not None
        ]
        self._watched = [(row, state) for row, state in enumerate(states) if state.bad_words is not None or state.is_below_min_tokens]
        bias = [(row, i, value) for row, state in enumerate(states) for i, value in (state.params.logit_bias or {}).items() if 0 <= i < vocab_size]
        self._bias_at = _index([(row, token_id) for row, token_id, _ in bias], device)
        self._bias = torch.tensor([value for _, _, value in bias], dtype=torch.float32, device=device)

    @property
    def is_empty(self) -> bool:
        """Whether no row is edited, now or later, while the batch stays the same."""
        return not (self._allowed or self._watched or len(self._bias))

    def apply(self, logits: Tensor) -> None:
        """Changes logits, float32 [rows, vocabulary], in place."""
        for row, token_ids in self._allowed:
            kept = logits[row, token_ids]
            logits[row] = -torch.inf
            logits[row, token_ids] = kept
        forbidden = [(row, token_id) for row, state in self._watched for token_id in _forbidden(state)]
        if forbidden:
            logits[_index(forbidden, logits.device)] = -torch.inf
        if len(self._bias):
            logits[self._bias_at] += self._bias


def _forbidden(state: SamplingState) -> list[int]:
    banned = state.bad_words.banned(state.output_token_ids) if state.bad_words is not None else []
    return banned + state.end_token_ids if state.is_below_min_tokens else banned


def _index(places: list[tuple[int, int]], device: torch.device) -> tuple[Tensor, Tensor]:
    rows, columns = torch.tensor(places, dtype=torch.int64, device=device).reshape(-1, 2).unbind(dim=1)
    return rows, columns
