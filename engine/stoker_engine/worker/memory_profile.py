"""How many bytes are left for the KV cache once the weights are there and the largest step has room."""

import logging

import torch

from stoker_engine.config import EngineConfig
from stoker_engine.core.kv_cache_config import GIB, MAX_CPU_KV_CACHE_BYTES
from stoker_engine.models.loader import LoadedModel
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.worker.device import available_host_memory, peak_resident_bytes, reset_peak_resident_bytes, resident_bytes
from stoker_engine.worker.dummy_step import DummyStep, prefill_step, run_step, sampling_step
from stoker_engine.worker.kv_cache import allocate_kv_cache
from stoker_engine.worker.model_runner import ModelRunner

logger = logging.getLogger(__name__)

MAX_CPU_TOKENS = 512
"""Longer prefills are not run on a CPU, where one takes seconds; their activations grow in proportion to the tokens."""

_FLOAT_BYTES = 4


def profile_kv_cache_bytes(config: EngineConfig, loaded: LoadedModel, vocab_size: int) -> int:
    """Returns the bytes that are left for the KV cache; 0 if nothing is. Runs the largest steps for that, on a CPU of at most MAX_CPU_TOKENS, and none
    where a CPU's memory is ample."""
    profile = _profile_cpu if loaded.model.device.type == "cpu" else _profile_cuda
    available = profile(config, loaded, vocab_size)
    logger.info("memory left for the KV cache: %.2f GiB", available / GIB)
    return available


def _profile_cpu(config: EngineConfig, loaded: LoadedModel, vocab_size: int) -> int:
    usable = int(config.gpu_memory_utilization * available_host_memory())
    if usable - _most_activations(config, loaded, vocab_size) >= MAX_CPU_KV_CACHE_BYTES:
        return MAX_CPU_KV_CACHE_BYTES  # whatever the steps took: they run for one to two seconds
    return max(0, min(usable - _measure_activations(config, loaded, vocab_size), MAX_CPU_KV_CACHE_BYTES))


def _most_activations(config: EngineConfig, loaded: LoadedModel, vocab_size: int) -> int:
    """More bytes than the largest step takes: each intermediate result several times over, in float32, and a whole matrix of attention scores."""
    shape = loaded.shape
    num_tokens = _max_step_tokens(config, loaded)
    num_keys = min(num_tokens, loaded.max_model_len)
    head_values = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    token_values = 8 * shape.hidden_size + 6 * head_values + 8 * shape.intermediate_size + shape.num_heads * num_keys
    num_samples = min(config.max_num_seqs, config.max_num_batched_tokens)
    return _FLOAT_BYTES * (num_tokens * token_values + 16 * num_samples * vocab_size)


def _measure_activations(config: EngineConfig, loaded: LoadedModel, vocab_size: int) -> int:
    prefill, sampling = _largest_steps(config, loaded, MAX_CPU_TOKENS)
    num_profiled = prefill.scheduler_output.total_num_scheduled_tokens
    token_bytes = loaded.kv_block_bytes // config.block_size
    peaks = []
    for step in (prefill, sampling):
        before = resident_bytes()
        reset_peak_resident_bytes()
        _run(step, loaded, vocab_size)
        # Of the KV cache only what the step wrote is resident.
        peaks.append(max(0, peak_resident_bytes() - before - step.scheduler_output.total_num_scheduled_tokens * token_bytes))
    return max(peaks[0] * _max_step_tokens(config, loaded) // num_profiled, peaks[1])


def _profile_cuda(config: EngineConfig, loaded: LoadedModel, vocab_size: int) -> int:
    device = loaded.model.device
    peak = 0
    for step in _largest_steps(config, loaded, config.max_num_batched_tokens):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        _run(step, loaded, vocab_size)
        peak = max(peak, torch.cuda.max_memory_allocated(device) - step.num_blocks * loaded.kv_block_bytes)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    outside_torch = total - free - torch.cuda.memory_reserved(device)
    return max(0, int(config.gpu_memory_utilization * total) - peak - outside_torch)


def _largest_steps(config: EngineConfig, loaded: LoadedModel, max_tokens: int) -> tuple[DummyStep, DummyStep]:
    """The two ends of what a step can be: all of the token budget in prefills, and as many requests as may run sampling, with penalties and logprobs."""
    prefill = prefill_step(min(_max_step_tokens(config, loaded), max_tokens), loaded.max_model_len, config.block_size)
    params = SamplingParams(temperature=1.0, top_p=0.95, presence_penalty=0.1, frequency_penalty=0.1, repetition_penalty=1.1, logprobs=config.max_logprobs)
    return prefill, sampling_step(min(config.max_num_seqs, config.max_num_batched_tokens), config.block_size, params)


def _max_step_tokens(config: EngineConfig, loaded: LoadedModel) -> int:
    return min(config.max_num_batched_tokens, config.max_num_seqs * loaded.max_model_len)


def _run(step: DummyStep, loaded: LoadedModel, vocab_size: int) -> None:
    kv_caches = allocate_kv_cache(loaded.ops, loaded.kv_cache_shape, step.num_blocks, loaded.dtype, loaded.model.device)
    run_step(ModelRunner(loaded, vocab_size, 0, kv_caches), step.scheduler_output)
