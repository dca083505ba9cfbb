"""The way of a token, api → engine → api, without HTTP and with a model that costs nothing: AsyncLLM before a FakeEngineCore in a process of its own.

Streams take DELTA outputs with text. Their rate is measured with steps of zero seconds; what a token is late, with steps of 20 ms, beyond those.
"""

import asyncio
import statistics
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import msgspec
import uvloop

from load import Workload, random_prompts
from options import Options, read_options
from report import Metric
from rounds import OURS, Metrics
from stoker_engine.frontend.async_llm import AsyncLLM
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.frontend.input_processor import RequestOptions
from stoker_engine.model_files import resolve_model
from stoker_engine.sampling_params import RequestOutputKind, SamplingParams
from stoker_engine.stats import IterationStats, SchedulerStats
from stoker_engine.testing import FakeEngineCore, Script, fake_engine_config
from stoker_engine.tokenizer import Tokenizer, load_tokenizer

NUM_STREAMS = {1: 4000, 32: 1000, 256: 400}
"""Number of streams → output tokens of each."""
STEP_SECONDS = 0.02
NUM_STEPS = 200
PROMPT_LEN = 128
READY_POLL_SECONDS = 0.02
METRICS = (
    Metric("tokens", "output tokens", "1/s", "higher"),
    Metric("messages", "messages", "1/s", "higher"),
    Metric("late", f"added to a token's {STEP_SECONDS * 1000:.0f} ms", "µs", "lower"),
)
TEXT = "The capital of France is Paris, a city on the Seine; its museums, cafés and bridges are known all over the world. How would you spend a day there? "
"""What every stream answers, again and again."""


class MessageCounter:
    """A StatLogger that counts the messages of the engine."""

    def __init__(self) -> None:
        self.num_messages = 0

    def record(self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats) -> None:
        self.num_messages += 1


@dataclass(slots=True, frozen=True)
class Run:
    """`num_streams` streams of `num_tokens` each: `seconds` from sending all requests to the last one's end, and between two tokens of one stream."""

    num_streams: int
    num_tokens: int
    seconds: float
    seconds_per_token: float
    num_messages: int

    @property
    def tokens_per_second(self) -> float:
        return self.num_streams * self.num_tokens / self.seconds

    @property
    def messages_per_second(self) -> float:
        return self.num_messages / self.seconds

    @property
    def late_microseconds(self) -> float:
        """A token's, beyond the step that made it."""
        return (self.seconds_per_token - STEP_SECONDS) * 1e6


@asynccontextmanager
async def running_llm(tokenizer: Tokenizer, counter: MessageCounter, script: Script) -> AsyncIterator[AsyncLLM]:
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as directory:
        config = msgspec.structs.replace(fake_engine_config(directory), max_num_seqs=max(NUM_STREAMS), max_num_batched_tokens=8192)
        llm = AsyncLLM(ClientConfig(directory), tokenizer, [counter])
        await llm.start()
        with FakeEngineCore(config, script) as engine:
            while not llm.is_ready:
                if engine.process.poll() is not None:
                    raise RuntimeError(f"the engine ended with {engine.process.returncode}")
                await asyncio.sleep(READY_POLL_SECONDS)
            try:
                yield llm
            finally:
                await llm.shutdown()


async def consume(llm: AsyncLLM, prompt: list[int], params: SamplingParams, request_id: str) -> float:
    """Mean seconds between two tokens."""
    num_tokens = num_characters = 0
    first = 0.0
    async for output in llm.generate(prompt, params, RequestOptions(request_id=request_id)):
        first = first or perf_counter()
        num_tokens += len(output.outputs[0].token_ids)
        num_characters += len(output.outputs[0].text)
    if num_tokens != params.max_tokens or num_characters < num_tokens:
        raise RuntimeError(f"asked for {params.max_tokens} tokens of text, got {num_tokens} and {num_characters} characters")
    return (perf_counter() - first) / (num_tokens - 1)


async def run(tokenizer: Tokenizer, num_streams: int, num_tokens: int, step_seconds: float) -> Run:
    counter = MessageCounter()
    reply = tokenizer.encode(TEXT) * (max(NUM_STREAMS.values()) // 20)
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True, output_kind=RequestOutputKind.DELTA)
    prompts = random_prompts(Workload(num_streams, num_streams, PROMPT_LEN, num_tokens))
    async with running_llm(tokenizer, counter, Script(default_reply=reply, step_seconds=step_seconds)) as llm:
        await consume(llm, prompts[0], params, "warm-up")
        counter.num_messages = 0
        start = perf_counter()
        async with asyncio.TaskGroup() as streams:
            tasks = [streams.create_task(consume(llm, prompt, params, str(index))) for index, prompt in enumerate(prompts)]
        seconds = perf_counter() - start
        return Run(num_streams, num_tokens, seconds, statistics.median(task.result() for task in tasks), counter.num_messages)


def metrics(tokenizer: Tokenizer, num_streams: int, options: Options, _number: int) -> Metrics:
    """One run of each kind."""
    fast = uvloop.run(run(tokenizer, num_streams, options.scaled(NUM_STREAMS[num_streams]), 0.0))
    paced = uvloop.run(run(tokenizer, num_streams, options.scaled(NUM_STEPS), STEP_SECONDS))
    return {"tokens": fast.tokens_per_second, "messages": fast.messages_per_second, "late": paced.late_microseconds}


def main() -> None:
    options = read_options(__doc__, [str(number) for number in NUM_STREAMS])
    tokenizer = load_tokenizer(resolve_model(options.model_uri))
    report = options.report("protocol")
    for number in NUM_STREAMS:
        if options.wants(str(number)):
            report.add(options.measure(f"{number} streams", {OURS: partial(metrics, tokenizer, number, options)}), METRICS)
    report.finish()


if __name__ == "__main__":
    main()
