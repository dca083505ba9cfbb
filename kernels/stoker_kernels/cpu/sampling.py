"""The C++ sampler of a batch whose rows stay the same from step to step: what they ask for and what comes out lie in arrays that are made once."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_SAMPLING_ROW = np.dtype([("request_key", np.uint64), ("top_p", np.float64), ("top_k", np.int64), ("temperature", np.float32), ("log_min_p", np.float32)])


@dataclass(frozen=True, slots=True)
class RowSettings:
    """How a row is sampled. A temperature of 0 takes the first of the largest logits; top_k 0, top_p 1 and min_p 0 are off."""

    request_key: int
    temperature: float
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


class SampledRows:
    """`token_ids` and `largest` [rows] are what the last call found; where the largest of a row's logits is not finite, its token means nothing."""

    def __init__(self, library: ctypes.CDLL, rows: Sequence[RowSettings]) -> None:
        number = len(rows)
        self.token_ids = np.zeros(number, dtype=np.int64)
        self.largest = np.zeros(number, dtype=np.float32)
        self._library = library
        self._number = number
        self._settings = np.zeros(number, dtype=_SAMPLING_ROW)
        # torch's logarithm: the other implementations compare with that.
        log_min_p = torch.tensor([row.min_p for row in rows], dtype=torch.float32).log().tolist()
        for index, row in enumerate(rows):
            self._settings[index] = (row.request_key, row.top_p, row.top_k, row.temperature, log_min_p[index])
        self._positions = np.zeros(number, dtype=np.int64)
        self._addresses = tuple(array.ctypes.data for array in (self._settings, self._positions, self.token_ids, self.largest))

    def sample(self, logits: Tensor, vocab_size: int, positions: npt.NDArray[np.int64]) -> int:
        """A token for each row of logits, float32 [rows, ≥ vocab_size]; positions [rows]: the index of the new token in its request.

        Returns how many rows' largest logit is not finite.
        """
        _check(logits, self._number, vocab_size)
        self._positions[:] = positions
        found: int = self._library.stoker_sample(logits.data_ptr(), logits.stride(0), self._number, vocab_size, *self._addresses)
        return found

    def find_largest(self, logits: Tensor, vocab_size: int) -> npt.NDArray[np.float32]:
        """Each row's largest logit, NaN where there is one in the row."""
        _check(logits, self._number, vocab_size)
        largest = np.empty(self._number, dtype=np.float32)
        self._library.stoker_find_largest(logits.data_ptr(), logits.stride(0), self._number, vocab_size, largest.ctypes.data)
        return largest


def _check(logits: Tensor, num_rows: int, vocab_size: int) -> None:
    shape = logits.shape
    if logits.dtype is not torch.float32 or shape[0] != num_rows or shape[1] < vocab_size or logits.stride(1) != 1 or vocab_size < 1:
        raise ValueError(
            f"logits must be float32 [{num_rows}, at least {vocab_size}] with rows that lie in one piece; "
            f"they are {logits.dtype} {list(shape)} with strides {list(logits.stride())}"
        )
