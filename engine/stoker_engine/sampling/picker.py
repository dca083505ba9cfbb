"""Picker: the last part of sampling, from edited logits to one token for each row. torch_picker.py is for every device, cpu_picker.py for the C++ ops."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from stoker_engine.sampling.sampling_metadata import SamplingMetadata
from stoker_engine.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Picked:
    """`token_ids` int64 and `largest`, each row's largest logit, NaN where there is one: [rows]. They may be overwritten by the next call.

    Where the largest is not finite, the token means nothing; `all_finite` is whether there is no such row.
    """

    token_ids: npt.NDArray[np.int64]
    largest: npt.NDArray[np.float32]
    all_finite: bool


class Picker(Protocol):
    """logits: float32 [rows, vocabulary], of the rows that the metadata is for. A row's token depends on that row alone."""

    def find_largest(self, logits: Tensor, metadata: SamplingMetadata) -> npt.NDArray[np.float32]:
        """Each row's largest logit, NaN where there is one in the row."""
        ...

    def pick(self, logits: Tensor, metadata: SamplingMetadata, positions: npt.NDArray[np.int64]) -> Picked:
        """Greedy rows get their largest logit's token, the others a draw. positions: [rows], they key the noise. The logits may be changed."""
        ...


def has_top_k(params: SamplingParams, vocab_size: int) -> bool:
    return 0 < params.top_k < vocab_size
