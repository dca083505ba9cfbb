"""Steps that no one asked for: large ones, for the memory they take, and small ones, to warm the kernels up."""

from dataclasses import dataclass

from stoker_engine.core.scheduler_output import CachedRequestData, NewRequestData, SchedulerOutput
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.worker.model_runner import ModelRunner


@dataclass(frozen=True, slots=True)
class DummyStep:
    """A first step of new requests, each with blocks of its own, from block 0."""

    scheduler_output: SchedulerOutput
    num_blocks: int


def prefill_step(num_tokens: int, max_length: int, block_size: int) -> DummyStep:
    """A step of `num_tokens` in which nobody samples: chunks of prompts that go on, none longer than `max_length`."""
    lengths = [max_length] * (num_tokens // max_length) + [num_tokens % max_length] * (num_tokens % max_length > 0)
    return _make_step(lengths, [length + 1 for length in lengths], block_size, SamplingParams())


def sampling_step(num_requests: int, block_size: int, params: SamplingParams) -> DummyStep:
    """A step of one token for each request, each of which samples another one."""
    return _make_step([1] * num_requests, [1] * num_requests, block_size, params)


def _make_step(num_scheduled: list[int], num_tokens: list[int], block_size: int, params: SamplingParams) -> DummyStep:
    requests, next_block = [], 0
    for index, (scheduled, tokens) in enumerate(zip(num_scheduled, num_tokens, strict=True)):
        block_ids = list(range(next_block, next_block - (-scheduled // block_size)))
        next_block += len(block_ids)
        requests.append(NewRequestData(f"dummy {index}", [0] * tokens, tokens, params, [], [], block_ids, 0))
    by_id = {request.request_id: scheduled for request, scheduled in zip(requests, num_scheduled, strict=True)}
    return DummyStep(SchedulerOutput(requests, CachedRequestData(), by_id, sum(num_scheduled), [], []), next_block)


def run_step(runner: ModelRunner, scheduler_output: SchedulerOutput) -> None:
    """Forward and, where there is something to sample, sampling."""
    if runner.execute_model(scheduler_output) is None:
        runner.sample_tokens(None)


def warm_up(runner: ModelRunner, block_size: int) -> None:
    """A prefill and a decode in block 0, the null block, whose content nobody reads."""
    request_id, params = "warm-up", SamplingParams(temperature=1.0, top_p=0.95)
    num_tokens = block_size - 1
    request = NewRequestData(request_id, [0] * num_tokens, num_tokens, params, [], [], [0], 0)
    run_step(runner, SchedulerOutput([request], CachedRequestData(), {request_id: num_tokens}, num_tokens, [], []))
    run_step(runner, SchedulerOutput([], CachedRequestData([request_id], [[]], [num_tokens]), {request_id: 1}, 1, [], []))
    run_step(runner, SchedulerOutput([], CachedRequestData(), {}, 0, [request_id], []))
