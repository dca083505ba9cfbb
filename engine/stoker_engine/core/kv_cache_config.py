"""How many KV cache blocks an engine has: what profiling left, or what the settings say; and how long a request may be to fit them."""

import logging
from dataclasses import dataclass

from stoker_engine.config import EngineConfig
from stoker_engine.errors import ConfigError
from stoker_engine.executor.base import ModelDescription

logger = logging.getLogger(__name__)

MAX_CPU_KV_CACHE_BYTES = 2 << 30
"""What profiling leaves at most on a CPU, whose memory is shared with everything else on the machine; kv_cache_memory_bytes may ask for more."""

GIB = 1 << 30


@dataclass(slots=True, frozen=True)
class KVCacheConfig:
    """`num_blocks` includes the null block, block 0. `max_model_len` is the setting, else the model's context or as much of it as fits."""

    num_blocks: int
    max_model_len: int


def size_kv_cache(config: EngineConfig, model: ModelDescription, available_bytes: int) -> KVCacheConfig:
    """available_bytes: what profiling left. Raises ConfigError where one request of the max_model_len that was asked for, or of one block, does not fit."""
    num_blocks = config.num_blocks_override or (config.kv_cache_memory_bytes or available_bytes) // model.kv_block_bytes
    max_model_len = config.max_model_len or model.max_model_len
    num_usable_tokens = max(0, num_blocks - 1) * config.block_size
    if num_usable_tokens < max_model_len:
        remedy = _remedy(config, available_bytes)
        if config.max_model_len is not None or num_usable_tokens == 0:
            raise ConfigError(_shortage(config, model, num_blocks, remedy))
        logger.warning(
            "maxModelLen is not set and lowered from the model's %d tokens to %d, which fill the %.2f GiB of KV cache; for longer requests %s",
            max_model_len,
            num_usable_tokens,
            num_blocks * model.kv_block_bytes / GIB,
            remedy,
        )
        max_model_len = num_usable_tokens
    logger.info(
        "KV cache: %d blocks of %d tokens, %.2f GiB, %.1f requests of %d tokens",
        num_blocks,
        config.block_size,
        num_blocks * model.kv_block_bytes / GIB,
        num_usable_tokens / max_model_len,
        max_model_len,
    )
    return KVCacheConfig(num_blocks=num_blocks, max_model_len=max_model_len)


def _shortage(config: EngineConfig, model: ModelDescription, num_blocks: int, remedy: str) -> str:
    max_model_len = config.max_model_len or config.block_size
    needed = (-(-max_model_len // config.block_size) + 1) * model.kv_block_bytes
    num_usable_tokens = max(0, num_blocks - 1) * config.block_size
    return (
        f"maxModelLen (--max-model-len): one request of {max_model_len} tokens needs {needed / GIB:.2f} GiB of KV cache, "
        f"there are {num_blocks * model.kv_block_bytes / GIB:.2f} GiB, enough for {num_usable_tokens} tokens; "
        + (f"lower maxModelLen or {remedy}" if num_usable_tokens else remedy)
    )


def _remedy(config: EngineConfig, available_bytes: int) -> str:
    """The settings that would give the KV cache more."""
    if config.num_blocks_override is not None:
        return "raise numBlocksOverride, or leave it out and set kvCacheMemoryBytes (--kv-cache-memory-bytes)"
    remedy = "raise kvCacheMemoryBytes (--kv-cache-memory-bytes)"
    if config.kv_cache_memory_bytes is None and available_bytes != MAX_CPU_KV_CACHE_BYTES and config.gpu_memory_utilization < 1:
        remedy += " or gpuMemoryUtilization (--gpu-memory-utilization)"
    return remedy
