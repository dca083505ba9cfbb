"""What a step tells every attention layer, built once per step, and the tensors that hold keys and values."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stoker_kernels import Ops
from stoker_kernels.dispatch import Plan

Integers = npt.NDArray[np.integer] | Sequence[int]


@dataclass(frozen=True, slots=True)
class AttentionMetadata:
    """`slot_mapping[t]` is the KV cache slot of the step's token t. `plan` has what the attention op needs on the device, computed once for all layers."""

    slot_mapping: Tensor
    plan: Plan


def build_attention_metadata(
    ops: Ops, *, query_start: Integers, sequence_lengths: Integers, block_table: npt.NDArray[np.integer], slot_mapping: Integers, kv_cache: Tensor
) -> AttentionMetadata:
    """The metadata of a step for one implementation of the ops, from lists or arrays on the CPU.

    query_start: [num_requests + 1], cumulative query lengths from 0: request r has the tokens query_start[r]:query_start[r + 1] of the step, at least one.
    sequence_lengths: [num_requests], tokens computed before this step plus those of this step.
    block_table: [num_requests, ≥ blocks of the longest request]; what lies past a request's own blocks is never looked at.
    slot_mapping: [num_tokens], block id × block_size + offset of each token.
    kv_cache: any one layer's KV cache; it gives block size, dtype and device.
    """
    starts = np.asarray(query_start, dtype=np.int64)
    lengths = np.asarray(sequence_lengths, dtype=np.int64)
    return AttentionMetadata(
        slot_mapping=torch.from_numpy(np.asarray(slot_mapping, dtype=np.int64)).to(kv_cache.device),
        plan=ops.plan_paged_attention(starts, lengths, block_table, kv_cache),
    )


@dataclass(frozen=True, slots=True)
class KVCacheShape:
    """The sizes of a model's KV cache, but for the number of blocks."""

    num_layers: int
    block_size: int
    num_kv_heads: int
    head_dim: int

    def block_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of one block over all layers: keys and values."""
        return 2 * self.num_layers * self.block_size * self.num_kv_heads * self.head_dim * dtype.itemsize
