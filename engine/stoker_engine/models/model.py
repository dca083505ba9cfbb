"""What the worker needs of a model, whichever class runs it."""

from typing import Protocol

import torch
from torch import Tensor

from stoker_engine.layers.attention import AttentionMetadata


class Model(Protocol):
    """A decoder on one device."""

    device: torch.device
    dtype: torch.dtype

    def forward(self, input_ids: Tensor, positions: Tensor, attention_metadata: AttentionMetadata, kv_caches: list[Tensor]) -> Tensor:
        """input_ids [T], positions [T] → normalized hidden states [T, hidden]. Writes the step's keys and values to kv_caches, one for each layer."""
        ...

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [R, hidden] of the rows that sample → logits [R, vocabulary] in float32."""
        ...
