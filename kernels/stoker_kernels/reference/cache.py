"""Writing keys and values to the KV cache [num_blocks, block_size, 2, num_kv_heads, D]."""

import torch
from torch import Tensor

from stoker_kernels.reference.rotary import rotary_embedding


def reshape_and_cache(key_value: Tensor, kv_cache: Tensor, slot_mapping: Tensor, kv_scale: Tensor | None = None) -> None:
    """Writes the keys and values of token t, key_value[t], to the slot slot_mapping[t] of kv_cache; a negative slot takes nothing.

    kv_scale: float32 [2, num_kv_heads], of keys and of values; what is kept is x / scale, at most the largest number of the cache's dtype.
    """
    block_size = kv_cache.shape[1]
    stored = key_value if kv_scale is None else key_value.float() / kv_scale[:, :, None]
    if kv_cache.dtype.itemsize == 1:
        limit = torch.finfo(kv_cache.dtype).max
        stored = stored.float().clamp(-limit, limit)
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            kv_cache[slot // block_size, slot % block_size] = stored[token].to(kv_cache.dtype)


def rotary_and_cache(qkv: Tensor, cos_sin: Tensor, slot_mapping: Tensor, kv_cache: Tensor, kv_scale: Tensor | None = None) -> None:
    """Rotates queries and keys of qkv [T, query | key | value heads, D] and writes keys and values to the cache.

    The queries are rotated in place; the keys' and values' part of qkv is left as it was.
    """
    num_kv_heads = kv_cache.shape[3]
    num_heads = qkv.shape[1] - 2 * num_kv_heads
    key_value = qkv[:, num_heads:].clone()
    rotary_embedding(qkv[:, :num_heads], cos_sin)
    rotary_embedding(key_value[:, :num_kv_heads], cos_sin)
    reshape_and_cache(key_value.view(len(qkv), 2, num_kv_heads, qkv.shape[2]), kv_cache, slot_mapping, kv_scale)
