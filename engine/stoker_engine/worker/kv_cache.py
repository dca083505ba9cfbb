"""The memory of the KV cache."""

import math

import torch
from torch import Tensor

from stoker_engine.core.kv_cache_config import GIB
from stoker_engine.errors import ConfigError
from stoker_engine.layers.attention import KVCacheShape
from stoker_engine.worker.device import available_host_memory
from stoker_kernels import Ops
from stoker_kernels.cpu.memory import allocate


def allocate_kv_cache(ops: Ops, shape: KVCacheShape, num_blocks: int, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """One zeroed KV cache tensor per layer, laid out for `ops`.

    On a CPU a page of it takes memory only once a token was written there: torch.zeros would touch all at once.

    Raises ConfigError where the device has less memory: the system would end the process without a word once the cache fills.
    """
    sizes = ops.kv_cache_shape(num_blocks, shape.block_size, shape.num_kv_heads, shape.head_dim)
    num_bytes = math.prod(sizes) * dtype.itemsize
    _check_memory(num_blocks, num_bytes * shape.num_layers, device)
    if device.type != "cpu":
        return [torch.zeros(sizes, dtype=dtype, device=device) for _ in range(shape.num_layers)]
    return [allocate(math.prod(sizes), dtype).view(sizes) for _ in range(shape.num_layers)]


def _check_memory(num_blocks: int, num_bytes: int, device: torch.device) -> None:
    free = available_host_memory() if device.type == "cpu" else torch.cuda.mem_get_info(device)[0]
    if num_bytes > free:
        raise ConfigError(
            f"numBlocksOverride (--num-blocks-override), kvCacheMemoryBytes (--kv-cache-memory-bytes): a KV cache of {num_blocks} blocks needs "
            f"{num_bytes / GIB:.2f} GiB, there are {free / GIB:.2f} GiB"
        )
