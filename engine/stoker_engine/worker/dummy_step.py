"""Steps that no one asked for: the largest one, for the memory it takes, and a small one, to warm the kernels up."""

from dataclasses import dataclass

from stoker_engine.config import EngineConfig
from stoker_engine.core.scheduler_output import CachedRequestData, NewRequestData, SchedulerOutput
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.worker.model_runner import ModelRunner


@dataclass(frozen=True, slots=True)
class DummyStep:
    """A first step of new requests, each with blocks of its own, from block 0."""

    scheduler_output: SchedulerOutput
    num_blocks: int


def make_dummy_step(num_tokens: int, num_requests: int, block_size: int, params: SamplingParams) -> DummyStep:
    """`num_tokens` spread evenly over `num_requests`, which are at most as many."""
    requests, next_block = [], 0
    for index in range(num_requests):
        length = num_tokens // num_requests + (index < num_tokens % num_requests)
        blocks = list(range(next_block, next_block - (-length // block_size)))
        next_block += len(blocks)
        requests.append(NewRequestData(f"dummy {index}", [0] * length, length, params, [], [], blocks, 0))
    scheduled = {request.request_id: len(request.token_ids) for request in requests}
    return DummyStep(SchedulerOutput(requests, CachedRequestData(), scheduled, num_tokens, [], []), next_block)


def largest_step(config: EngineConfig, max_model_len: int, max_tokens: int) -> DummyStep:
    """The step that takes the most memory, with at most `max_tokens` tokens: the token budget used up by as many requests as may run, all with logprobs."""
    num_tokens = min(config.max_num_batched_tokens, config.max_num_seqs * max_model_len, max_tokens)
    params = SamplingParams(temperature=1.0, top_p=0.95, logprobs=config.max_logprobs, max_tokens=None)
    return make_dummy_step(num_tokens, min(config.max_num_seqs, num_tokens), config.block_size, params)


def warm_up(runner: ModelRunner, block_size: int) -> None:
    """A prefill and a decode in block 0, the null block, whose content nobody reads."""
    first = make_dummy_step(block_size - 1, 1, block_size, SamplingParams(temperature=1.0, top_p=0.95, max_tokens=None)).scheduler_output
    request_id = first.new_requests[0].request_id
    runner.execute(first)
    runner.execute(SchedulerOutput([], CachedRequestData([request_id], [[]], [block_size - 1]), {request_id: 1}, 1, [], []))
    runner.execute(SchedulerOutput([], CachedRequestData(), {}, 0, [request_id], []))
