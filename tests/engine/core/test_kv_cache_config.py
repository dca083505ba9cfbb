import logging
from collections.abc import Callable
from typing import Any

import pytest

from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.core.kv_cache_config import MAX_CPU_KV_CACHE_BYTES, KVCacheConfig, size_kv_cache
from stoker_engine.errors import ConfigError
from stoker_engine.executor.base import ModelDescription

# Llama-3.2-1B in bfloat16: 16 layers, 8 key-value heads of 64 dimensions, blocks of 16 tokens.
LLAMA = ModelDescription(max_model_len=131072, vocab_size=128256, dtype="bfloat16", kv_block_bytes=2 * 16 * 16 * 8 * 64 * 2)

Size = Callable[..., KVCacheConfig]


@pytest.fixture
def size() -> Size:
    def run(available_bytes: int = MAX_CPU_KV_CACHE_BYTES, **settings: Any) -> KVCacheConfig:
        return size_kv_cache(EngineConfig(model=ModelConfig(uri="file:///model"), **settings), LLAMA, available_bytes)

    return run


def test_a_context_that_does_not_fit_is_lowered_to_whole_blocks_with_a_warning(size: Size, caplog: pytest.LogCaptureFixture) -> None:
    found = size()
    assert found == KVCacheConfig(num_blocks=4096, max_model_len=4095 * 16)
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "lowered from the model's 131072 tokens to 65520, which fill the 2.00 GiB of KV cache" in record.getMessage()
    assert "kvCacheMemoryBytes" in record.getMessage()
    assert "gpuMemoryUtilization" not in record.getMessage()


def test_a_context_that_fits_is_the_models_own(size: Size, caplog: pytest.LogCaptureFixture) -> None:
    assert size(available_bytes=5 << 30).max_model_len == 131072
    assert [record for record in caplog.records if record.levelno == logging.WARNING] == []


def test_the_null_block_counts(size: Size) -> None:
    exact = (131072 // 16 + 1) * LLAMA.kv_block_bytes
    assert size(available_bytes=exact).max_model_len == 131072
    assert size(available_bytes=exact - 1).max_model_len == 131072 - 16


def test_a_length_that_was_asked_for_and_does_not_fit_is_refused(size: Size) -> None:
    with pytest.raises(ConfigError) as error:
        size(max_model_len=65521)
    assert str(error.value) == (
        "maxModelLen (--max-model-len): one request of 65521 tokens needs 2.00 GiB of KV cache, there are 2.00 GiB, enough for 65520 tokens; "
        "lower maxModelLen or raise kvCacheMemoryBytes (--kv-cache-memory-bytes)"
    )


def test_a_length_that_was_asked_for_and_fits_is_kept(size: Size) -> None:
    assert size(max_model_len=65519).max_model_len == 65519


def test_the_share_of_the_memory_is_named_only_where_it_can_help(size: Size) -> None:
    def refusal(**settings: Any) -> str:
        with pytest.raises(ConfigError) as error:
            size(max_model_len=131072, **settings)
        return str(error.value)

    assert "gpuMemoryUtilization" in refusal(available_bytes=1 << 30)
    assert "gpuMemoryUtilization" not in refusal(available_bytes=1 << 30, gpu_memory_utilization=1.0)
    assert "gpuMemoryUtilization" not in refusal(available_bytes=5 << 30, kv_cache_memory_bytes=1 << 30)
    assert "numBlocksOverride" in refusal(available_bytes=5 << 30, num_blocks_override=9)


@pytest.mark.parametrize("available_bytes", [0, LLAMA.kv_block_bytes])
def test_memory_for_no_block_at_all_is_refused(size: Size, available_bytes: int) -> None:
    with pytest.raises(ConfigError, match=r"one request of 16 tokens needs .*, enough for 0 tokens; raise kvCacheMemoryBytes"):
        size(available_bytes=available_bytes)


def test_the_settings_come_before_what_profiling_left(size: Size) -> None:
    assert size(available_bytes=0, kv_cache_memory_bytes=5 << 30).num_blocks == 10240
    assert size(available_bytes=0, kv_cache_memory_bytes=5 << 30, num_blocks_override=7) == KVCacheConfig(num_blocks=7, max_model_len=96)
