"""An engine core in this process, without sockets, and batches of requests that all decode in each of its steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any
from zlib import crc32

from options import Options
from stoker_engine.config import EngineConfig
from stoker_engine.core.engine_core import EngineCore
from stoker_engine.executor.uniproc import UniprocExecutor
from stoker_engine.protocol import EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.settings import from_values

PROMPT_LEN = 64
MAX_TOKENS = 1500
KINDS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS, ignore_eos=True),
    "top_p": SamplingParams(temperature=0.8, top_p=0.95, max_tokens=MAX_TOKENS, ignore_eos=True),
}
NUM_TOKEN_IDS = 40000
"""Prompts have ids below it."""
GRAMMAR_POLL_SECONDS = 0.001


class Unreported:
    """Nobody watches the start."""

    def report_phase(self, *_: Any, **__: Any) -> None:
        return


def start(options: Options) -> EngineCore:
    settings = {
        "log_level": "warning",
        "max_num_seqs": "32",
        "max_model_len": "2048",
        **{name.replace("-", "_"): value for name, value in options.settings.items()},
    }
    config = from_values(EngineConfig, {**settings, "model_uri": options.model_uri})
    return EngineCore(config, UniprocExecutor(config), Unreported())


@contextmanager
def decoding(core: EngineCore, params: SamplingParams, size: int, name: str) -> Iterator[None]:
    """Inside the block, every request of `size` decodes in each step. Names differ, so that no prompt comes twice.

    Raises RuntimeError where fewer of them can run at once, or one ends.
    """
    state = core.scheduler.state
    if state.limits.max_num_seqs < size:
        raise RuntimeError(f"max-num-seqs is {state.limits.max_num_seqs}: {size} requests do not decode at once; leave out their line by --only, or --set more")
    try:
        for index in range(size):
            prompt = [(crc32(name.encode()) + index * 131 + position) % NUM_TOKEN_IDS for position in range(PROMPT_LEN)]
            core.add_request(core.preprocess(EngineCoreRequest(f"{name}-{index}", prompt, params, arrival_time=0.0)))
        while len(state.running) < size:
            if not _step(core):
                sleep(GRAMMAR_POLL_SECONDS)  # the first grammar is being compiled
        _step(core)
        yield
        if len(state.running) < size:
            raise RuntimeError(f"{name}: a request ended, or lost its blocks, before the steps were measured")
    finally:
        core.abort_requests(list(state.requests))
        core.step()


def _step(core: EngineCore) -> bool:
    """Whether anything was computed. Raises RuntimeError where a request ends."""
    result = core.step()
    ended = [output for message in result.outputs.values() for output in message.outputs if output.finish_reason is not None]
    if ended:
        raise RuntimeError(f"{ended[0].request_id} ended before all decode: {ended[0].failure_message or ended[0].finish_reason}")
    return result.executed
