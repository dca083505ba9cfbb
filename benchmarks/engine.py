"""The engine without HTTP, through its sockets: one stream alone, and batches of 64 requests sent at once."""

import asyncio
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

from bandwidth import Bracketed, bracketed
from load import Workload, random_prompts
from options import Options, read_options
from report import Figure, Row, publish
from servers import KV_CACHE_BYTES, START_SECONDS, engine_config, socket_directory, stop_process
from stoker_engine.frontend.async_llm import AsyncLLM
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.frontend.input_processor import RequestOptions
from stoker_engine.model_files import resolve_model
from stoker_engine.sampling_params import RequestOutputKind, SamplingParams
from stoker_engine.settings import to_args
from stoker_engine.tokenizer import load_tokenizer

NUM_WARMUPS = 2
NUM_SINGLE_STREAMS = 5
READY_POLL_SECONDS = 0.05


@asynccontextmanager
async def running_engine(model_uri: str, max_num_seqs: int) -> AsyncIterator[AsyncLLM]:
    """An engine process and its client in this process, READY."""
    with socket_directory() as directory:
        llm = AsyncLLM(ClientConfig(socket_dir=directory), load_tokenizer(resolve_model(model_uri)), [])
        await llm.start()
        process = subprocess.Popen([sys.executable, "-m", "stoker_engine", *to_args(engine_config(model_uri, directory, max_num_seqs))])
        try:
            async with asyncio.timeout(START_SECONDS):
                while not llm.is_ready:
                    if process.poll() is not None:
                        raise RuntimeError(f"the engine ended with {process.returncode}")
                    await asyncio.sleep(READY_POLL_SECONDS)
            yield llm
        finally:
            await llm.shutdown()
            stop_process(process)


async def seconds_for(llm: AsyncLLM, workload: Workload) -> float:
    """Seconds from sending all requests of `workload` to the last one's end."""
    prompts = random_prompts(workload)
    params = SamplingParams(temperature=0.0, max_tokens=workload.output_len, ignore_eos=True, output_kind=RequestOutputKind.FINAL_ONLY)
    start = perf_counter()
    async with asyncio.TaskGroup() as requests:
        for index, prompt in enumerate(prompts):
            requests.create_task(_run(llm, prompt, params, f"{workload.seed}-{index}"))
    return perf_counter() - start


async def _run(llm: AsyncLLM, prompt: list[int], params: SamplingParams, request_id: str) -> None:
    async for output in llm.generate(prompt, params, RequestOptions(request_id=request_id)):
        if output.finished and output.num_output_tokens != params.max_tokens:
            raise RuntimeError(f"asked for {params.max_tokens} tokens, got {output.num_output_tokens}")


async def single_stream_seconds(model_uri: str, input_len: int, output_len: int) -> float:
    """Mean seconds of one request alone, each with a prompt of its own."""
    async with running_engine(model_uri, 32) as llm:
        times = [await seconds_for(llm, Workload(1, 1, input_len, output_len, seed)) for seed in range(NUM_WARMUPS + NUM_SINGLE_STREAMS)]
    return statistics.mean(times[NUM_WARMUPS:])


async def batch_seconds(model_uri: str, workload: Workload) -> float:
    """Seconds of an offline batch, after a short warm-up."""
    async with running_engine(model_uri, workload.concurrency) as llm:
        await seconds_for(llm, Workload(4, 4, workload.input_len, 8, seed=1))
        return await seconds_for(llm, workload)


def single_stream_row(options: Options, input_len: int, output_len: int) -> Row:
    def rate(measured: Bracketed[float]) -> Figure:
        return Figure(output_len / measured.value, measured.before, measured.after)

    peer = options.peer
    ours = bracketed(lambda: asyncio.run(single_stream_seconds(options.model_uri, input_len, output_len)))
    theirs = bracketed(lambda: peer.single_stream_seconds(input_len, output_len, KV_CACHE_BYTES)) if peer else None
    return Row(f"one stream, {input_len} in / {output_len} out: output tokens", "1/s", "higher", rate(ours), rate(theirs) if theirs else None)


def batch_row(options: Options, workload: Workload) -> Row:
    """Long prompts are rated by all their tokens, short ones by the output's."""
    is_long = workload.input_len > workload.output_len
    num_tokens = workload.num_requests * (workload.output_len + (workload.input_len if is_long else 0))

    def rate(measured: Bracketed[float]) -> Figure:
        return Figure(num_tokens / measured.value, measured.before, measured.after)

    peer = options.peer
    ours = bracketed(lambda: asyncio.run(batch_seconds(options.model_uri, workload)))
    theirs = bracketed(lambda: peer.batch_seconds(workload, KV_CACHE_BYTES)) if peer else None
    sizes = f"{workload.num_requests} x {workload.input_len} in / {workload.output_len} out, {workload.concurrency} at once"
    return Row(f"{sizes}: {'all' if is_long else 'output'} tokens", "1/s", "higher", rate(ours), rate(theirs) if theirs else None)


def main() -> None:
    options = read_options(__doc__)
    num_requests = options.scaled(64)
    output_len = options.scaled(128)
    rows = [
        single_stream_row(options, 128, output_len),
        batch_row(options, Workload(num_requests, min(32, num_requests), 16, output_len, seed=2)),
        batch_row(options, Workload(num_requests, num_requests, 1024, output_len, seed=3)),
    ]
    publish("engine", rows, options.peer_name)


if __name__ == "__main__":
    main()
