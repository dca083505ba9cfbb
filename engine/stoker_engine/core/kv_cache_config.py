"""How many KV cache blocks an engine has: what profiling left, or what the settings say; and that one longest request fits."""

import logging
from dataclasses import dataclass

from stoker_engine.config import EngineConfig
from stoker_engine.errors import ConfigError
from stoker_engine.executor.base import ModelDescription

logger = logging.getLogger(__name__)

GIB = 1 << 30


@dataclass(slots=True, frozen=True)
class KVCacheConfig:
    """`num_blocks` includes the null block, block 0."""

    num_blocks: int
    max_model_len: int


def size_kv_cache(config: EngineConfig, model: ModelDescription, available_bytes: int) -> KVCacheConfig:
    """Raises ConfigError where max_model_len exceeds the model's context, or one request of that length does not fit."""
    max_model_len = config.max_model_len or model.max_model_len
    if max_model_len > model.max_model_len:
        raise ConfigError(f"--max-model-len: the model's context is {model.max_model_len} tokens, got {max_model_len}")
    if config.kv_cache_memory_bytes is not None:
        available_bytes = config.kv_cache_memory_bytes
    num_blocks = config.num_blocks_override or available_bytes // model.kv_block_bytes
    usable_tokens = max(0, num_blocks - 1) * config.block_size
    if usable_tokens < max_model_len:
        needed = (-(-max_model_len // config.block_size) + 1) * model.kv_block_bytes
        raise ConfigError(
            f"--max-model-len: one request of {max_model_len} tokens needs {needed / GIB:.2f} GiB of KV cache, "
            f"there are {num_blocks * model.kv_block_bytes / GIB:.2f} GiB: enough for {usable_tokens} tokens. "
            "Lower --max-model-len, or raise --gpu-memory-utilization or --kv-cache-memory-bytes"
        )
    logger.info(
        "KV cache: %d blocks of %d tokens, %.2f GiB, %.1f requests of %d tokens",
        num_blocks,
        config.block_size,
        num_blocks * model.kv_block_bytes / GIB,
        usable_tokens / max_model_len,
        max_model_len,
    )
    return KVCacheConfig(num_blocks=num_blocks, max_model_len=max_model_len)
