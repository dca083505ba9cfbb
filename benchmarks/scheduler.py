"""The scheduler alone: microseconds of schedule() and update_from_output() per decode step with 16, 64, 256 and 1024 running requests, beside vLLM's own.

Requests that were admitted together reach the end of a block together: with few requests the median is a step without a new block, the mean counts all.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter

from bandwidth import Bracketed, bracketed
from options import Options, read_options
from report import Figure, Row, publish
from servers import MAX_MODEL_LEN
from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.core.block_hash import BlockHasher
from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.request import Request
from stoker_engine.core.scheduler import Scheduler
from stoker_engine.protocol import EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams
from vllm_peer import StepTimes

SIZES = (16, 64, 256, 1024)
NUM_WARMUPS = 20
"""Steps until every request has been admitted: 1024 prompts are 16 budgets."""
NUM_STEPS = 200
PROMPT_LEN = 128
BLOCKS_PER_REQUEST = 64
MAX_TOKENS = 1500
TOKEN_BUDGET = 8192
STATISTICS = ("median", "mean")


@dataclass(slots=True, frozen=True)
class Stand:
    """A scheduler whose requests are all admitted, and what stands in for the model."""

    scheduler: Scheduler
    num_running: int

    def step_microseconds(self) -> float | None:
        """One step. None where it was no decode step of all requests."""
        start = perf_counter()
        scheduled = self.scheduler.schedule()
        seconds = perf_counter() - start
        requests = self.scheduler.state.requests
        sampling = [request_id for request_id in scheduled.num_scheduled_tokens if requests[request_id].num_computed_tokens == requests[request_id].num_tokens]
        output = ModelRunnerOutput(sampled_token_ids={request_id: [7] for request_id in sampling})
        start = perf_counter()
        self.scheduler.update_from_output(scheduled, output)
        seconds += perf_counter() - start
        is_decode = len(sampling) == self.num_running == scheduled.total_num_scheduled_tokens
        return seconds * 1e6 if is_decode else None


def make_stand(num_running: int) -> Stand:
    config = EngineConfig(model=ModelConfig(uri="file:///none"), block_size=16, max_num_seqs=num_running, max_num_batched_tokens=max(TOKEN_BUDGET, num_running))
    scheduler = Scheduler(config, max_model_len=MAX_MODEL_LEN, num_blocks=num_running * BLOCKS_PER_REQUEST)
    hasher = BlockHasher(config.block_size)
    params = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True)
    for index in range(num_running):
        prompt = [(index * 131 + position) % 40000 for position in range(PROMPT_LEN)]
        scheduler.add_request(Request.from_engine_core_request(EngineCoreRequest(str(index), prompt, params, arrival_time=0.0), hasher))
    return Stand(scheduler, num_running)


def step_times(num_steps: int) -> StepTimes:
    return {num_running: measure(make_stand(num_running), num_steps) for num_running in SIZES}


def measure(stand: Stand, num_steps: int) -> Mapping[str, float]:
    for _ in range(NUM_WARMUPS):
        stand.step_microseconds()
    times = [time for _ in range(num_steps) if (time := stand.step_microseconds()) is not None]
    return {"median": statistics.median(times), "mean": statistics.mean(times)}


def row(num_running: int, statistic: str, ours: Bracketed[StepTimes], theirs: Bracketed[StepTimes] | None) -> Row:
    def figure(measured: Bracketed[StepTimes]) -> Figure:
        return Figure(measured.value[num_running][statistic], measured.before, measured.after)

    return Row(f"schedule + update, {num_running} running: {statistic}", "us", "lower", figure(ours), figure(theirs) if theirs else None)


def measured_rows(options: Options) -> list[Row]:
    peer, num_steps = options.peer, options.scaled(NUM_STEPS)
    ours = bracketed(lambda: step_times(num_steps))
    theirs = bracketed(lambda: peer.scheduler_step_times(SIZES, num_steps)) if peer else None
    return [row(num_running, statistic, ours, theirs) for num_running in SIZES for statistic in STATISTICS]


def main() -> None:
    options = read_options(__doc__)
    publish("scheduler", measured_rows(options), options.peer_name)


if __name__ == "__main__":
    main()
