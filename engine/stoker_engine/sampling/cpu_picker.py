"""The picker of the C++ ops: all rows in one call, greedy and random ones alike. Its tokens are TorchPicker's."""

import numpy as np
import numpy.typing as npt
from torch import Tensor

from stoker_engine.sampling.picker import Picked, has_top_k
from stoker_engine.sampling.sampling_metadata import SamplingMetadata
from stoker_engine.sampling.sampling_state import SamplingState
from stoker_kernels.cpu.ops import CpuOps
from stoker_kernels.cpu.sampling import RowSettings, SampledRows


class CpuPicker:
    """A steady batch's settings are laid out once; its results overwrite those before."""

    def __init__(self, ops: CpuOps, vocab_size: int) -> None:
        self._ops = ops
        self._vocab_size = vocab_size
        self._metadata: SamplingMetadata | None = None
        self._rows = SampledRows(ops.library, ())

    def find_largest(self, logits: Tensor, metadata: SamplingMetadata) -> npt.NDArray[np.float32]:
        return self._rows_for(metadata).find_largest(logits, self._vocab_size)

    def pick(self, logits: Tensor, metadata: SamplingMetadata, positions: npt.NDArray[np.int64]) -> Picked:
        rows = self._rows_for(metadata)
        num_not_finite = rows.sample(logits, self._vocab_size, positions)
        return Picked(rows.token_ids, rows.largest, num_not_finite == 0)

    def _rows_for(self, metadata: SamplingMetadata) -> SampledRows:
        if metadata is not self._metadata:
            self._metadata = metadata
            self._rows = SampledRows(self._ops.library, [self._settings(state) for state in metadata.states])
        return self._rows

    def _settings(self, state: SamplingState) -> RowSettings:
        params = state.params
        if params.greedy:
            return RowSettings(state.noise_key, 0.0)
        return RowSettings(state.noise_key, params.temperature, params.top_k if has_top_k(params, self._vocab_size) else 0, params.top_p, params.min_p)
