"""Every op in plain torch: the specification of each, and the oracle of the tests. Shapes are in README.md."""

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x / sqrt(mean(x²) + ε) · weight over the last dimension, the normalized x rounded to its dtype before the product (Zhang and Sennrich 2019)."""
    x_float = x.float()
    normalized = x_float * torch.rsqrt(x_float.square().mean(-1, keepdim=True) + epsilon)
    return normalized.to(x.dtype) * weight


def fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """residual += x, in place, then the norm of residual."""
    residual.add_(x)
    return rms_norm(residual, weight, epsilon)


def rotary_embedding(x: Tensor, cos_sin: Tensor) -> None:
    """Rotates the pairs (x[i], x[i + D/2]) of each head of x [T, heads, ≥ D] by their angles, in place (Su et al. 2021, half-split layout).

    cos_sin: [T, 2, D/2], in x's dtype; every product is rounded to it. What lies past D in a head is left alone.
    """
    cos, sin = cos_sin[:, None, 0], cos_sin[:, None, 1]
    half = cos.shape[-1]
    first, second = x[..., :half].clone(), x[..., half : 2 * half].clone()
    x[..., :half] = first * cos - second * sin
    x[..., half : 2 * half] = second * cos + first * sin


def silu_and_mul(x: Tensor) -> Tensor:
    """silu(gate) · up for x [T, 2·I] = gate | up, silu rounded to x's dtype (Shazeer 2020)."""
    gate, up = x.chunk(2, dim=-1)
    return (gate.float() * torch.sigmoid(gate.float())).to(x.dtype) * up


def reshape_and_cache(key_value: Tensor, kv_cache: Tensor, slot_mapping: Tensor) -> None:
    """Writes the keys and values of token t, key_value[t], to the slot slot_mapping[t] of kv_cache."""
    block_size = kv_cache.shape[1]
    for token, slot in enumerate(slot_mapping.tolist()):
        kv_cache[slot // block_size, slot % block_size] = key_value[token]


def paged_attention(query: Tensor, kv_cache: Tensor, query_start: Tensor, sequence_lengths: Tensor, block_table: Tensor, scale: float) -> Tensor:
    """Causal attention of every request's query rows over its keys and values in the cache; head h reads key-value head h // (heads / key-value heads).

    query: [T, num_heads, D]; request r has the rows query_start[r]:query_start[r + 1], the last of its sequence_lengths[r] positions.
    Computed in float32, returned in query's dtype, [T, num_heads, D].
    """
    block_size = kv_cache.shape[1]
    group = query.shape[1] // kv_cache.shape[3]
    output = torch.empty_like(query)
    for request in range(len(sequence_lengths)):
        start, end, length = int(query_start[request]), int(query_start[request + 1]), int(sequence_lengths[request])
        blocks = block_table[request, : -(-length // block_size)].long()
        keys, values = kv_cache[blocks].float().flatten(0, 1)[:length].unbind(1)
        for row in range(start, end):
            visible = length - (end - 1 - row)
            for head in range(query.shape[1]):
                scores = keys[:visible, head // group] @ query[row, head].float() * scale
                output[row, head] = (scores.softmax(0) @ values[:visible, head // group]).to(query.dtype)
    return output
