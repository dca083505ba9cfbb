"""DeviceInputs: a step's arrays as the model takes them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from stoker_engine.layers.attention import AttentionMetadata, build_attention_metadata
from stoker_engine.worker.step_inputs import StepInputs
from stoker_kernels import Ops


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """On the model's device: input_ids, positions [T]."""

    input_ids: Tensor
    positions: Tensor
    attention: AttentionMetadata


class DeviceInputs:
    """A plan of the C++ ops only points at the step's arrays: it is made once, for all the steps that move them on in place. kv_cache: any one layer's."""

    def __init__(self, ops: Ops, kv_cache: Tensor) -> None:
        self._ops = ops
        self._kv_cache = kv_cache
        self._step: StepInputs | None = None
        self._inputs: ModelInputs | None = None

    def of(self, step: StepInputs) -> ModelInputs:
        if self._inputs is None or step is not self._step or self._ops.cpu is None:
            self._step, self._inputs = step, self._make(step)
        return self._inputs

    def _make(self, step: StepInputs) -> ModelInputs:
        attention = build_attention_metadata(
            self._ops,
            query_start=step.query_start,
            sequence_lengths=step.sequence_lengths,
            block_table=step.block_table,
            slot_mapping=step.slot_mapping,
            kv_cache=self._kv_cache,
        )
        device = self._kv_cache.device
        return ModelInputs(torch.from_numpy(step.input_ids).to(device), torch.from_numpy(step.positions).to(device), attention)
