"""Writing a step's keys and values to their slots of the KV cache [num_blocks, block_size, 2, num_kv_heads, D]: a slot is one contiguous row."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoker_kernels.triton.launch import launch_config


@triton.jit
def to_cache_dtype(values: tl.tensor, scales: tl.tensor, dtype: tl.constexpr, LIMIT: tl.constexpr) -> tl.tensor:
    """values / scales, no further from 0 than LIMIT where that is above 0."""
    scaled = values / scales
    if LIMIT > 0:
        scaled = tl.minimum(tl.maximum(scaled, -LIMIT), LIMIT)
    return scaled.to(dtype)


@triton.jit
def _reshape_and_cache_kernel(
    key_value: tl.tensor,  # [T, SIZE], SIZE = 2 · num_kv_heads · HEAD_DIM
    kv_cache: tl.tensor,
    slot_mapping: tl.tensor,  # int64 [T]
    kv_scale: tl.tensor,  # [2 · num_kv_heads], or None
    token_stride: tl.tensor,
    slot_stride: tl.tensor,
    SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    LIMIT: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + token)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < tl.where(slot >= 0, SIZE, 0)
    values = tl.load(key_value + token * token_stride + columns, mask=inside, other=0.0).to(tl.float32)
    scales = 1.0
    if kv_scale is not None:
        scales = tl.load(kv_scale + columns // HEAD_DIM, mask=inside, other=1.0)
    tl.store(kv_cache + slot * slot_stride + columns, to_cache_dtype(values, scales, kv_cache.dtype.element_ty, LIMIT), mask=inside)


def reshape_and_cache(key_value: Tensor, kv_cache: Tensor, slot_mapping: Tensor, kv_scale: Tensor | None = None) -> None:
    """key_value [T, 2, num_kv_heads, D], each token's in one piece, to slot_mapping [T]; a negative slot takes nothing. kv_scale float32 [2, num_kv_heads]."""
    num_tokens, size = len(key_value), key_value[:1].numel()
    if num_tokens == 0:
        return
    config = launch_config("reshape_and_cache", "*", key_value.device)
    _reshape_and_cache_kernel[(num_tokens, triton.cdiv(size, config["BLOCK"]))](
        key_value,
        kv_cache,
        slot_mapping,
        kv_scale,
        key_value.stride(0),
        kv_cache.stride(1),
        SIZE=size,
        HEAD_DIM=key_value.shape[3],
        LIMIT=largest_kept(kv_cache.dtype),
        **config,
    )


def largest_kept(dtype: torch.dtype) -> float:
    """What values are cut to in a cache of 8-bit floats, whose overflow is NaN; 0 where nothing is cut."""
    return torch.finfo(dtype).max if dtype.itemsize == 1 else 0.0
