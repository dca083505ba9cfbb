"""How many bytes are left for the KV cache once the weights are there and the largest step has room."""

import logging

import torch

from stoker_engine.config import EngineConfig
from stoker_engine.models.loader import LoadedModel
from stoker_engine.worker.device import available_host_memory, peak_resident_bytes, reset_peak_resident_bytes, resident_bytes
from stoker_engine.worker.dummy_step import DummyStep, largest_step
from stoker_engine.worker.kv_cache import allocate_kv_cache
from stoker_engine.worker.model_runner import ModelRunner

logger = logging.getLogger(__name__)

MAX_CPU_KV_CACHE_BYTES = 2 << 30
"""Unless the settings ask for more: on a CPU the memory is shared with everything else on the machine."""
MAX_CPU_TOKENS = 2048
"""Larger steps are not run on a CPU, where they would take minutes; their activations grow in proportion to the tokens."""
GIB = 1 << 30


def profile_kv_cache_bytes(config: EngineConfig, loaded: LoadedModel, vocab_size: int) -> int:
    """Runs the largest step and returns the bytes that the KV cache may take; 0 if nothing is left."""
    profile = _profile_cpu if loaded.model.device.type == "cpu" else _profile_cuda
    available = profile(config, loaded, vocab_size)
    logger.info("memory for the KV cache: %.2f GiB", available / GIB)
    return config.kv_cache_memory_bytes or available


def _profile_cpu(config: EngineConfig, loaded: LoadedModel, vocab_size: int) -> int:
    step = largest_step(config, loaded.max_model_len, MAX_CPU_TOKENS)
    before = resident_bytes()
    reset_peak_resident_bytes()
    _run(step, loaded, vocab_size)
    tokens = min(config.max_num_batched_tokens, config.max_num_seqs * loaded.max_model_len)
    activations = max(0, peak_resident_bytes() - before) * tokens // step.scheduler_output.total_num_scheduled_tokens
    available = int(config.gpu_memory_utilization * available_host_memory()) - activations
    return max(0, min(available, MAX_CPU_KV_CACHE_BYTES))


def _profile_cuda(config: EngineConfig, loaded: LoadedModel, vocab_size: int) -> int:
    device = loaded.model.device
    step = largest_step(config, loaded.max_model_len, config.max_num_batched_tokens)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    _run(step, loaded, vocab_size)
    peak = torch.cuda.max_memory_allocated(device) - step.num_blocks * loaded.kv_block_bytes
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    outside_torch = total - free - torch.cuda.memory_reserved(device)
    return max(0, int(config.gpu_memory_utilization * total) - peak - outside_torch)


def _run(step: DummyStep, loaded: LoadedModel, vocab_size: int) -> None:
    kv_caches = allocate_kv_cache(loaded.kv_cache_shape, step.num_blocks, loaded.dtype, loaded.model.device)
    ModelRunner(loaded, vocab_size, 0, kv_caches).execute(step.scheduler_output)
