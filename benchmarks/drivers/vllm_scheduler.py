"""MODEL NUM_STEPS SIZE…: times vLLM's Scheduler as scheduler.py times ours, in vLLM's own environment; prints {size: {"median": us, "mean": us}}."""

import json
import os
import statistics
import sys
from time import perf_counter

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"

import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

NUM_WARMUPS = 20
PROMPT_LEN = 128
BLOCK_SIZE = 16
BLOCKS_PER_REQUEST = 64
MAX_TOKENS = 1500
TOKEN_BUDGET = 8192
MAX_MODEL_LEN = 2048


def make_scheduler(model: str, num_running: int) -> Scheduler:
    num_blocks = num_running * BLOCKS_PER_REQUEST
    cache_config = CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True)
    cache_config.num_gpu_blocks = num_blocks
    config = VllmConfig(
        model_config=ModelConfig(model=model, dtype="bfloat16", max_model_len=MAX_MODEL_LEN),
        scheduler_config=SchedulerConfig(
            max_num_seqs=num_running,
            max_num_batched_tokens=max(TOKEN_BUDGET, num_running),
            max_model_len=MAX_MODEL_LEN,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
        ),
        cache_config=cache_config,
        parallel_config=ParallelConfig(),
        device_config=DeviceConfig("cpu"),
    )
    spec = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=3, head_size=64, dtype=torch.bfloat16)
    kv_cache_config = KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    return Scheduler(
        vllm_config=config,
        kv_cache_config=kv_cache_config,
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK_SIZE,
        log_stats=False,
    )


def add_requests(scheduler: Scheduler, num_running: int) -> None:
    init_none_hash(sha256)
    hasher = get_request_block_hasher(BLOCK_SIZE, sha256)
    for index in range(num_running):
        prompt = [(index * 131 + position) % 40000 for position in range(PROMPT_LEN)]
        params = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True)
        scheduler.add_request(Request(str(index), prompt_token_ids=prompt, sampling_params=params, pooling_params=None, block_hasher=hasher))


def step_microseconds(scheduler: Scheduler, num_running: int) -> float | None:
    start = perf_counter()
    scheduled = scheduler.schedule()
    seconds = perf_counter() - start
    request_ids = list(scheduled.num_scheduled_tokens)
    requests = scheduler.requests
    tokens = [[7] if requests[request_id].num_computed_tokens >= requests[request_id].num_tokens else [] for request_id in request_ids]
    output = ModelRunnerOutput(
        req_ids=request_ids,
        req_id_to_index={request_id: index for index, request_id in enumerate(request_ids)},
        sampled_token_ids=tokens,
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )
    start = perf_counter()
    scheduler.update_from_output(scheduled, output)
    seconds += perf_counter() - start
    is_decode = sum(map(len, tokens)) == num_running == scheduled.total_num_scheduled_tokens
    return seconds * 1e6 if is_decode else None


def main() -> None:
    model, num_steps, sizes = sys.argv[1], int(sys.argv[2]), [int(size) for size in sys.argv[3:]]
    result = {}
    for num_running in sizes:
        scheduler = make_scheduler(model, num_running)
        add_requests(scheduler, num_running)
        for _ in range(NUM_WARMUPS):
            step_microseconds(scheduler, num_running)
        times = [time for _ in range(num_steps) if (time := step_microseconds(scheduler, num_running)) is not None]
        result[num_running] = {"median": statistics.median(times), "mean": statistics.mean(times)}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
