"""Attention of a step over the paged cache [num_blocks, block_size, 2, num_kv_heads, D]: prefill chunks in one launch, decodes in two.

Splits and tiles begin at fixed positions, so what a row's sums are made of follows from its request and chunk alone, not from what else is in the step.
"""

import torch
from torch import Tensor

from stoker_kernels.triton.attention_plan import AttentionOptions, TritonAttentionPlan, plan_attention
from stoker_kernels.triton.decode_attention import attend_decodes
from stoker_kernels.triton.prefill_attention import attend_chunks

__all__ = ["paged_attention", "plan_attention"]


def paged_attention(
    query: Tensor,
    kv_cache: Tensor,
    plan: TritonAttentionPlan,
    scale: float,
    *,
    window: int | None = None,
    soft_cap: float | None = None,
    sinks: Tensor | None = None,
    kv_scale: Tensor | None = None,
) -> Tensor:
    """query [T, num_heads, D] → the same shape, undefined in rows of no request; a layer's kv_cache, contiguous, in query's dtype or float8_e4m3fn.

    window: keys a row sees, its own with them. soft_cap: scores are cut to ±soft_cap by tanh. sinks [num_heads]: a logit of each head without a value.
    kv_scale float32 [2, num_kv_heads]: what the cache holds is multiplied by it.
    """
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    options = AttentionOptions(window or 0, soft_cap or 0.0, sinks, kv_scale)
    if len(plan.decodes):
        attend_decodes(output, query, kv_cache, plan, scale, options)
    if len(plan.chunk_requests):
        attend_chunks(output, query, kv_cache, plan, scale, options)
    return output
