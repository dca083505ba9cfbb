"""Attention over the paged KV cache: what a step tells every layer, built once per step, and the call each layer makes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from stoker_kernels import AttentionPlan, kv_cache_shape, paged_attention, plan_paged_attention, reshape_and_cache
from torch import Tensor

Integers = npt.NDArray[np.int32] | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AttentionMetadata:
    """One step's batch: request r has the tokens `query_start[r]:query_start[r + 1]` of the step.

    `sequence_lengths[r]` counts its tokens computed before this step plus those of this step; `slot_mapping[t]` is the slot of token t's key
    and value. `plan` has what the attention op needs of it on the device, computed once for all layers.
    """

    num_requests: int
    num_tokens: int
    max_query_len: int
    max_sequence_len: int
    slot_mapping: Tensor
    plan: AttentionPlan


def build_attention_metadata(
    *, query_start: Integers, sequence_lengths: Integers, block_table: Integers, slot_mapping: Integers, block_size: int, device: torch.device
) -> AttentionMetadata:
    """The metadata of a step, from arrays on the CPU.

    query_start: [num_requests + 1] cumulative query lengths from 0; sequence_lengths: [num_requests], computed + scheduled;
    block_table: [num_requests, ≥ blocks of the longest request], what lies past a request's own blocks is never looked at;
    slot_mapping: [num_tokens], block id × block_size + offset. Every request has at least one token.
    """
    return AttentionMetadata(
        num_requests=len(sequence_lengths),
        num_tokens=int(query_start[-1]),
        max_query_len=int(np.diff(query_start).max()),
        max_sequence_len=int(sequence_lengths.max()),
        slot_mapping=torch.from_numpy(slot_mapping.astype(np.int64, copy=False)).to(device),
        plan=plan_paged_attention(query_start, sequence_lengths, block_table, block_size, device),
    )


def allocate_kv_caches(*, num_layers: int, num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """One zeroed KV cache tensor per layer."""
    shape = kv_cache_shape(num_blocks, block_size, num_kv_heads, head_dim)
    return [torch.zeros(shape, dtype=dtype, device=device) for _ in range(num_layers)]
