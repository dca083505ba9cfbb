"""Rotary embedding in place, and the same of a step's queries and keys while keys and values go to the cache: one pass over the merged projection."""

import triton
import triton.language as tl
from torch import Tensor

from stoker_kernels.triton.cache import largest_kept, to_cache_dtype
from stoker_kernels.triton.launch import launch_config, padded_size


@triton.jit
def _rotate(first: tl.tensor, second: tl.tensor, cos_sin: tl.tensor, HALF: tl.constexpr, PADDED: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """The pairs (first, second) [heads, PADDED] turned by the angles at cos_sin, every product rounded to its dtype."""
    pairs = tl.arange(0, PADDED)
    cos = tl.load(cos_sin + pairs, mask=pairs < HALF, other=0.0).to(tl.float32)[None, :]
    sin = tl.load(cos_sin + HALF + pairs, mask=pairs < HALF, other=0.0).to(tl.float32)[None, :]
    dtype = cos_sin.dtype.element_ty
    turned_first = (first * cos).to(dtype).to(tl.float32) - (second * sin).to(dtype).to(tl.float32)
    turned_second = (second * cos).to(dtype).to(tl.float32) + (first * sin).to(dtype).to(tl.float32)
    return turned_first, turned_second


@triton.jit
def _rotary_kernel(
    x: tl.tensor,  # [T, num_heads, ≥ 2 · HALF]
    cos_sin: tl.tensor,  # [T, 2, HALF]
    token_stride: tl.tensor,
    head_stride: tl.tensor,
    num_heads: tl.tensor,
    HALF: tl.constexpr,
    PADDED: tl.constexpr,
    HEADS: tl.constexpr,
) -> None:
    token = tl.program_id(0).to(tl.int64)
    heads, pairs = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, PADDED)
    inside = (heads < num_heads)[:, None] & (pairs < HALF)[None, :]
    at = x + token * token_stride + heads[:, None] * head_stride + pairs[None, :]
    first, second = tl.load(at, mask=inside, other=0.0).to(tl.float32), tl.load(at + HALF, mask=inside, other=0.0).to(tl.float32)
    first, second = _rotate(first, second, cos_sin + token * 2 * HALF, HALF, PADDED)
    tl.store(at, first.to(x.dtype.element_ty), mask=inside)
    tl.store(at + HALF, second.to(x.dtype.element_ty), mask=inside)


@triton.jit
def _rotary_and_cache_kernel(
    qkv: tl.tensor,  # [T, num_heads + 2 · num_kv_heads, HEAD_DIM]
    cos_sin: tl.tensor,  # [T, 2, HALF]
    kv_cache: tl.tensor,
    slot_mapping: tl.tensor,  # int64 [T]
    kv_scale: tl.tensor,  # [2 · num_kv_heads], or None
    token_stride: tl.tensor,
    head_stride: tl.tensor,
    slot_stride: tl.tensor,
    num_heads: tl.tensor,
    num_kv_heads: tl.tensor,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    PADDED: tl.constexpr,
    REST_PADDED: tl.constexpr,
    LIMIT: tl.constexpr,
    HEADS: tl.constexpr,
) -> None:
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + token)
    heads, pairs = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, PADDED)
    dtype = qkv.dtype.element_ty
    cache_dtype = kv_cache.dtype.element_ty
    is_query, is_value = (heads < num_heads)[:, None], (heads >= num_heads + num_kv_heads)[:, None]
    is_cached = ((heads >= num_heads) & (heads < num_heads + tl.where(slot >= 0, 2 * num_kv_heads, 0)))[:, None]
    scales = 1.0
    if kv_scale is not None:
        scales = tl.load(kv_scale + heads[:, None] - num_heads, mask=is_cached, other=1.0)
    from_heads = qkv + token * token_stride + heads[:, None] * head_stride
    to_heads = kv_cache + slot * slot_stride + (heads[:, None] - num_heads) * HEAD_DIM
    is_pair = (pairs < HALF)[None, :]
    inside = (is_query | is_cached) & is_pair
    first = tl.load(from_heads + pairs[None, :], mask=inside, other=0.0).to(tl.float32)
    second = tl.load(from_heads + HALF + pairs[None, :], mask=inside, other=0.0).to(tl.float32)
    turned_first, turned_second = _rotate(first, second, cos_sin + token * 2 * HALF, HALF, PADDED)
    # Rounded as the projection is, before a cache of another dtype rounds again.
    first = tl.where(is_value, first, turned_first.to(dtype).to(tl.float32))
    second = tl.where(is_value, second, turned_second.to(dtype).to(tl.float32))
    tl.store(from_heads + pairs[None, :], first.to(dtype), mask=is_query & is_pair)
    tl.store(from_heads + HALF + pairs[None, :], second.to(dtype), mask=is_query & is_pair)
    tl.store(to_heads + pairs[None, :], to_cache_dtype(first, scales, cache_dtype, LIMIT), mask=is_cached & is_pair)
    tl.store(to_heads + HALF + pairs[None, :], to_cache_dtype(second, scales, cache_dtype, LIMIT), mask=is_cached & is_pair)
    if 2 * HALF < HEAD_DIM:
        rest = 2 * HALF + tl.arange(0, REST_PADDED)[None, :]
        unturned = tl.load(from_heads + rest, mask=is_cached & (rest < HEAD_DIM), other=0.0).to(tl.float32)
        tl.store(to_heads + rest, to_cache_dtype(unturned, scales, cache_dtype, LIMIT), mask=is_cached & (rest < HEAD_DIM))


def rotary_embedding(x: Tensor, cos_sin: Tensor) -> None:
    """x [T, heads, ≥ D] in place, cos_sin [T, 2, D/2] contiguous."""
    num_tokens, num_heads, _ = x.shape
    half = cos_sin.shape[2]
    config = launch_config("rotary", "*", x.device)
    grid = (num_tokens, triton.cdiv(num_heads, config["HEADS"]))
    _rotary_kernel[grid](x, cos_sin, x.stride(0), x.stride(1), num_heads, HALF=half, PADDED=padded_size(half), **config)


def rotary_and_cache(qkv: Tensor, cos_sin: Tensor, slot_mapping: Tensor, kv_cache: Tensor, kv_scale: Tensor | None = None) -> None:
    """Rotates the queries of qkv [T, query | key | value heads, D] in place, writes rotated keys and values to the cache; a negative slot takes nothing.

    cos_sin [T, 2, rotated / 2] contiguous, slot_mapping int64 [T], kv_scale float32 [2, num_kv_heads]. The keys in qkv stay as they were.
    """
    num_tokens, num_all, head_dim = qkv.shape
    num_kv_heads, half = kv_cache.shape[3], cos_sin.shape[2]
    config = launch_config("rotary", "*", qkv.device)
    _rotary_and_cache_kernel[(num_tokens, triton.cdiv(num_all, config["HEADS"]))](
        qkv,
        cos_sin,
        kv_cache,
        slot_mapping,
        kv_scale,
        qkv.stride(0),
        qkv.stride(1),
        kv_cache.stride(1),
        num_all - 2 * num_kv_heads,
        num_kv_heads,
        HEAD_DIM=head_dim,
        HALF=half,
        PADDED=padded_size(half),
        REST_PADDED=padded_size(max(head_dim - 2 * half, 1)),
        LIMIT=largest_kept(kv_cache.dtype),
        **config,
    )
