"""The scheduler alone: microseconds of schedule() and update_from_output() per decode step with 16, 64, 256 and 1024 running requests, beside vLLM's own.

Requests that were admitted together reach the end of a block together: with few requests the median is a step without a new block, the mean counts all.
"""

import os
import statistics
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import msgspec

from options import Options, read_options
from peers import MAX_MODEL_LEN, VARIABLES, Peer
from processes import DRIVERS
from report import Metric
from rounds import OURS, Line, Measure, Metrics
from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.core.block_hash import BlockHasher
from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.request import Request
from stoker_engine.core.scheduler import Scheduler
from stoker_engine.protocol import EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams

SIZES = (16, 64, 256, 1024)
NUM_WARMUPS = 20
"""Steps until every request has been admitted: 1024 prompts are 16 budgets."""
NUM_STEPS = 200
PROMPT_LEN = 128
BLOCKS_PER_REQUEST = 64
MAX_TOKENS = 1500
TOKEN_BUDGET = 8192
METRICS = (Metric("median", "median", "µs", "lower"), Metric("mean", "mean", "µs", "lower"))
TAIL_CHARACTERS = 2000


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


def measure(stand: Stand, num_steps: int) -> Metrics:
    for _ in range(NUM_WARMUPS):
        stand.step_microseconds()
    times = [time for _ in range(num_steps) if (time := stand.step_microseconds()) is not None]
    return {"median": statistics.median(times), "mean": statistics.mean(times)}


def ours(num_running: int, num_steps: int, _number: int) -> Metrics:
    return measure(make_stand(num_running), num_steps)


def theirs(peer: Peer, num_running: int, num_steps: int, _number: int) -> Metrics:
    """What drivers/vllm_scheduler.py prints, in a process of vllm's environment."""
    command = [str(peer.python), str(DRIVERS / "vllm_scheduler.py"), str(peer.model), str(num_steps), str(num_running)]
    done = subprocess.run(command, env={**os.environ, **VARIABLES}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-TAIL_CHARACTERS:]}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=dict[int, dict[str, float]])[num_running]


def lines(options: Options) -> Iterator[Line]:
    peer, num_steps = options.peer("vllm"), options.scaled(NUM_STEPS)
    for num_running in SIZES:
        if options.wants(str(num_running)):
            contestants: dict[str, Measure] = {OURS: partial(ours, num_running, num_steps)}
            if peer:
                contestants[peer.name] = partial(theirs, peer, num_running, num_steps)
            yield options.measure(f"schedule + update, {num_running} running", contestants)


def main() -> None:
    options = read_options(__doc__, [str(size) for size in SIZES])
    report = options.report("scheduler")
    for line in lines(options):
        report.add(line, METRICS)
    report.finish()


if __name__ == "__main__":
    main()
