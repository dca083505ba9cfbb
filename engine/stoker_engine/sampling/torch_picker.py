"""The picker in torch ops, for every device."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stoker_engine.sampling.candidates import find_candidates, survivors
from stoker_engine.sampling.device_ops import argmax
from stoker_engine.sampling.draw import draw_from_candidates, draw_from_vocabulary
from stoker_engine.sampling.noise import position_keys
from stoker_engine.sampling.picker import Picked
from stoker_engine.sampling.random_rows import RandomRows, find_random_rows
from stoker_engine.sampling.sampling_metadata import SamplingMetadata


class TorchPicker:
    """A batch's parameters become tensors once, and are used until the batch changes."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._metadata: SamplingMetadata | None = None
        self._random_rows: tuple[RandomRows, ...] = ()

    def find_largest(self, logits: Tensor, _metadata: SamplingMetadata) -> npt.NDArray[np.float32]:
        largest: npt.NDArray[np.float32] = logits.amax(dim=-1).cpu().numpy()
        return largest

    def pick(self, logits: Tensor, metadata: SamplingMetadata, positions: npt.NDArray[np.int64]) -> Picked:
        if metadata is not self._metadata:
            self._metadata, self._random_rows = metadata, find_random_rows(metadata.states, self._vocab_size, logits.device)
        token_ids = argmax(logits)
        max_logits = logits.gather(1, token_ids[:, None]).squeeze(1)
        largest = max_logits.cpu().numpy()
        not_finite = np.flatnonzero(~np.isfinite(largest))
        if len(not_finite):
            # A row of zeros can be sampled without harm; its token is not used.
            largest, rows = largest.copy(), torch.from_numpy(not_finite).to(logits.device)
            logits[rows], max_logits[rows] = 0.0, 0.0
        for random_rows in self._random_rows:
            token_ids[torch.from_numpy(random_rows.rows)] = _draw(logits, max_logits, random_rows, positions)
        return Picked(token_ids.cpu().numpy(), largest, len(not_finite) == 0)


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
