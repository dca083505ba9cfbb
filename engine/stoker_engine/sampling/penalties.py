"""Repetition, frequency and presence penalties, on the tokens that a request has seen, without a pass over the vocabulary.

repetition r, on prompt ∪ output: a positive logit is divided by r, another multiplied. Then, on output tokens only:
logit −= frequency × count, logit −= presence.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class TokenCounts:
    """The distinct tokens of one request, and how often its output has each. Grows by a token at a time."""

    __slots__ = ("_counts", "_places", "_token_ids", "size")

    def __init__(self, prompt_token_ids: Sequence[int], output_token_ids: Sequence[int]) -> None:
        distinct = dict.fromkeys([*prompt_token_ids, *output_token_ids])
        self.size = len(distinct)
        self._places = dict(zip(distinct, range(self.size), strict=True))
        self._token_ids = np.zeros(max(2 * self.size, 64), dtype=np.int64)
        self._token_ids[: self.size] = list(distinct)
        self._counts = np.zeros(len(self._token_ids), dtype=np.float32)
        for token_id in output_token_ids:
            self._counts[self._places[token_id]] += 1

    @property
    def token_ids(self) -> npt.NDArray[np.int64]:
        return self._token_ids[: self.size]

    @property
    def output_counts(self) -> npt.NDArray[np.float32]:
        return self._counts[: self.size]

    def add_output(self, token_id: int) -> None:
        place = self._places.setdefault(token_id, self.size)
        if place == self.size:
            if self.size == len(self._token_ids):
                self._token_ids = np.concatenate([self._token_ids, np.zeros_like(self._token_ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._token_ids[place] = token_id
            self.size += 1
        self._counts[place] += 1


class Penalties:
    """The penalties of a batch's rows, as long as the batch stays the same."""

    def __init__(self, rows: Sequence[int], counts: Sequence[TokenCounts], strengths: Sequence[tuple[float, float, float]]) -> None:
        """strengths: repetition, frequency and presence of each row."""
        self._rows = np.asarray(rows, dtype=np.int64)
        self._counts = counts
        self._strengths = np.asarray(strengths, dtype=np.float32)

    def apply(self, logits: Tensor) -> None:
        """Changes logits, float32 [rows, vocabulary], in place."""
        sizes = [counts.size for counts in self._counts]
        token_ids = torch.from_numpy(np.concatenate([counts.token_ids for counts in self._counts]))
        output_counts = torch.from_numpy(np.concatenate([counts.output_counts for counts in self._counts]))
        rows = torch.from_numpy(np.repeat(self._rows, sizes))
        repetition, frequency, presence = torch.from_numpy(np.repeat(self._strengths, sizes, axis=0)).to(logits.device).unbind(dim=1)
        rows, token_ids, output_counts = rows.to(logits.device), token_ids.to(logits.device), output_counts.to(logits.device)
        values = logits[rows, token_ids]
        values = torch.where(values > 0, values / repetition, values * repetition)
        values -= frequency * output_counts
        values -= presence * (output_counts > 0)
        logits[rows, token_ids] = values
