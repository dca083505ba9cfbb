"""The ops that Stoker's engine runs on a device: plain torch references, and faster implementations behind one dispatch.

Each function here runs the implementation that dispatch.py chose for its arguments' device; reference.py says what each computes, README.md the shapes.
"""

import numpy as np
import numpy.typing as npt
from torch import Tensor

from stoker_kernels.attention_plan import AttentionPlan
from stoker_kernels.dispatch import ops_for

__all__ = [
    "AttentionPlan",
    "fused_add_rms_norm",
    "kv_cache_shape",
    "paged_attention",
    "plan_paged_attention",
    "reshape_and_cache",
    "rms_norm",
    "rotary_embedding",
    "silu_and_mul",
]


def kv_cache_shape(num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int) -> tuple[int, ...]:
    """The shape of one layer's KV cache: slot `block id × block_size + offset` holds a token's keys, then its values, in one piece."""
    return (num_blocks, block_size, 2, num_kv_heads, head_dim)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """The root mean square norm of each row of x [T, H], times weight [H]."""
    return ops_for(x.device.type).rms_norm(x, weight, epsilon)


def fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Adds x to residual in place (both [T, H]) and returns the norm of the sum."""
    return ops_for(x.device.type).fused_add_rms_norm(x, residual, weight, epsilon)


def rotary_embedding(x: Tensor, cos_sin: Tensor) -> None:
    """Rotates the heads of x [T, heads, head_dim] in place by the angles in cos_sin [T, 2, D/2], D ≤ head_dim."""
    ops_for(x.device.type).rotary_embedding(x, cos_sin)


def silu_and_mul(x: Tensor) -> Tensor:
    """silu(gate) · up, [T, I], for x [T, 2·I] = gate | up."""
    return ops_for(x.device.type).silu_and_mul(x)


def reshape_and_cache(key_value: Tensor, kv_cache: Tensor, slot_mapping: Tensor) -> None:
    """Writes key_value [T, 2, num_kv_heads, head_dim] to the slots slot_mapping [T] (int64, no slot twice) of kv_cache."""
    ops_for(kv_cache.device.type).reshape_and_cache(key_value, kv_cache, slot_mapping)


def plan_paged_attention(
    query_start: npt.NDArray[np.int64], sequence_lengths: npt.NDArray[np.int64], block_table: npt.NDArray[np.integer], kv_cache: Tensor
) -> AttentionPlan:
    """What `paged_attention` needs to know of a step, computed once for all layers, from arrays on the CPU.

    query_start [R + 1]: request r has the query rows query_start[r]:query_start[r + 1], at least one. sequence_lengths [R]: its tokens with those of this
    step. block_table [R, blocks]: its block ids; what lies past its own blocks is never looked at. kv_cache: any layer's, for block size, dtype and device.
    """
    return ops_for(kv_cache.device.type).plan_paged_attention(query_start, sequence_lengths, block_table, kv_cache)


def paged_attention(query: Tensor, kv_cache: Tensor, plan: AttentionPlan, scale: float) -> Tensor:
    """Causal attention of a whole step, prefill chunks and decodes, over keys and values in the cache: query [T, num_heads, head_dim] → the same shape.

    The keys and values of this step must be in the cache. Softmax is accumulated in float32. A row depends on slots of its own request only.
    """
    return ops_for(query.device.type).paged_attention(query, kv_cache, plan, scale)
