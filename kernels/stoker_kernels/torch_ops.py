"""The ops in plain torch, arranged for few and large calls: same results as reference/, up to the order of sums."""

import torch
from torch import Tensor
from torch.nn import functional

from stoker_kernels.attention_plan import AttentionPlan, DecodeGroup, PrefillChunk, padded_rows


def kv_cache_shape(num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int) -> tuple[int, ...]:
    """The shape of one layer's KV cache: slot `block id × block_size + offset` holds a token's keys, then its values, in one piece."""
    return (num_blocks, block_size, 2, num_kv_heads, head_dim)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), None, epsilon).mul_(weight)


def fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return rms_norm(residual.add_(x), weight, epsilon)


def rotary_embedding(x: Tensor, cos_sin: Tensor) -> None:
    half = cos_sin.shape[-1]
    first, second = x[..., :half], x[..., half : 2 * half]
    # [T, heads, half of x, cos or sin, D/2]: all four products in one call.
    products = x[..., : 2 * half].view(*x.shape[:-1], 2, 1, half) * cos_sin[:, None, None]
    torch.sub(products[:, :, 0, 0], products[:, :, 1, 1], out=first)
    torch.add(products[:, :, 1, 0], products[:, :, 0, 1], out=second)


def rotary_and_cache(qkv: Tensor, cos_sin: Tensor, slot_mapping: Tensor, kv_cache: Tensor) -> None:
    num_tokens, num_all_heads, head_dim = qkv.shape
    num_kv_heads = kv_cache.shape[3]
    rotary_embedding(qkv[:, : num_all_heads - num_kv_heads], cos_sin)
    reshape_and_cache(qkv[:, num_all_heads - 2 * num_kv_heads :].view(num_tokens, 2, num_kv_heads, head_dim), kv_cache, slot_mapping)


def silu_and_mul(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)


def reshape_and_cache(key_value: Tensor, kv_cache: Tensor, slot_mapping: Tensor) -> None:
    kv_cache.flatten(0, 1).index_copy_(0, slot_mapping, key_value)


def paged_attention(query: Tensor, kv_cache: Tensor, plan: AttentionPlan, scale: float) -> Tensor:
    output = torch.empty_like(query)
    for group in plan.decode_groups:
        _attend_decodes(query, kv_cache, group, scale, output)
    for chunk in plan.prefill_chunks:
        _attend_prefill(query, kv_cache, chunk, scale, output)
    return output


def _attend_decodes(query: Tensor, kv_cache: Tensor, group: DecodeGroup, scale: float, output: Tensor) -> None:
    _, _, _, num_kv_heads, head_dim = kv_cache.shape
    rows = query if group.rows is None else query.index_select(0, group.rows)
    # [R, keys, 2, num_kv_heads, D]; the query heads of a key-value head are the query rows of its attention, so nothing is repeated.
    keys, values = kv_cache.flatten(0, 1).index_select(0, group.slots).view(group.num_rows, -1, 2, num_kv_heads, head_dim).transpose(1, 3).unbind(2)
    heads = rows.view(group.num_rows, num_kv_heads, -1, head_dim)
    num_heads = heads.shape[2]
    attended = functional.scaled_dot_product_attention(_pad_rows(heads), keys, values, attn_mask=group.mask, scale=scale)[:, :, :num_heads]
    if group.rows is None:
        output.view(heads.shape).copy_(attended)
    else:
        output.index_copy_(0, group.rows, attended.reshape(rows.shape))


def _attend_prefill(query: Tensor, kv_cache: Tensor, chunk: PrefillChunk, scale: float, output: Tensor) -> None:
    num_kv_heads = kv_cache.shape[3]
    # [2, num_kv_heads, keys, D]: each key-value head is a batch entry and its query heads share it by a stride of 0.
    gathered = kv_cache.flatten(0, 1).index_select(0, chunk.slots).permute(1, 2, 0, 3)
    for piece in chunk.pieces:
        num_rows = piece.end - piece.start
        heads = query[piece.start : piece.end].view(num_rows, num_kv_heads, -1, query.shape[2]).permute(1, 2, 0, 3)
        keys, values = gathered[:, :, : piece.num_keys].unsqueeze(2).expand(-1, -1, heads.shape[1], -1, -1)
        is_causal = piece.mask is None
        attended = functional.scaled_dot_product_attention(_pad_rows(heads), keys, values, attn_mask=piece.mask, is_causal=is_causal, scale=scale)
        output[piece.start : piece.end].view(num_rows, num_kv_heads, heads.shape[1], -1).copy_(attended[:, :, :num_rows].permute(2, 0, 1, 3))


def _pad_rows(rows: Tensor) -> Tensor:
    """[..., rows, D] with rows of zeros up to the number that attends."""
    missing = padded_rows(rows.shape[-2], rows.device.type) - rows.shape[-2]
    return functional.pad(rows, (0, 0, 0, missing)) if missing else rows
