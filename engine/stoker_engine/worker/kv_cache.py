"""The memory of the KV cache."""

import math
import mmap

import torch
from torch import Tensor

from stoker_engine.layers.attention import KVCacheShape
from stoker_kernels import kv_cache_shape


def allocate_kv_cache(shape: KVCacheShape, num_blocks: int, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """One zeroed KV cache tensor per layer. On a CPU a page of it takes memory only once a token was written there: torch.zeros would touch all at once."""
    sizes = kv_cache_shape(num_blocks, shape.block_size, shape.num_kv_heads, shape.head_dim)
    if device.type != "cpu":
        return [torch.zeros(sizes, dtype=dtype, device=device) for _ in range(shape.num_layers)]
    num_bytes = math.prod(sizes) * dtype.itemsize
    return [torch.frombuffer(mmap.mmap(-1, num_bytes), dtype=dtype).view(sizes) for _ in range(shape.num_layers)]
