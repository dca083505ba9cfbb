"""The gateway's process, before real replicas or small ones, for tests that break things."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, ...], float]


@dataclass
class Gateway:
    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def is_ready(self) -> bool:
        """Only where nothing that it needs is served by the caller's own event loop."""
        assert self.process.poll() is None, "the gateway ended"
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/readyz", trust_env=False).status_code == 200
        return False

    def samples(self) -> Samples:
        return read_samples(httpx.get(f"{self.url}/metrics", trust_env=False, timeout=30).text)

    def num_in_flight(self) -> float:
        return sum(value for (name, *_), value in self.samples().items() if name == "stoker_gateway_num_requests_in_flight")

    @property
    def num_open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def read_samples(page: str) -> Samples:
    """By name and labels' values."""
    return {(sample.name, *sample.labels.values()): sample.value for family in text_string_to_metric_families(page) for sample in family.samples}


@contextmanager
def run_gateway(folder: Path, port: int, *flags: str, prefix: tuple[str, ...] = ()) -> Iterator[Gateway]:
    own = ("--host=127.0.0.1", f"--port={port}", "--drain-delay=0s", "--drain-timeout=0s", "--log-level=error")
    command = (*prefix, sys.executable, "-m", "stoker_gateway.router", *own, f"--termination-message-path={folder}/end", *flags)
    process = subprocess.Popen(command)
    try:
        yield Gateway(port, process)
        assert process.poll() is None, "the gateway ended"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def run_server(listener: socket.socket, handle: Handle) -> AsyncIterator[None]:
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            await handle(reader, writer)
        tasks.discard(task)
        writer.transport.abort()

    server = await asyncio.start_server(serve, sock=listener)
    try:
        yield
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks)
        await asyncio.sleep(0)


@pytest.fixture(scope="session")
def serve() -> Callable[[socket.socket, Handle], AbstractAsyncContextManager[None]]:
    """`async with serve(listener, handle)`: ends all connections at its end."""
    return run_server


@pytest.fixture(scope="session")
def samples_of() -> Callable[[str], Samples]:
    """Of a page of metrics."""
    return read_samples


@pytest.fixture(scope="module")
def start_module_gateway(tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]) -> Iterator[Callable[..., Gateway]]:
    """`start_module_gateway(*flags, prefix=…)`: one that may not be ready yet."""
    with ExitStack() as stack:
        yield lambda *flags, **more: stack.enter_context(run_gateway(tmp_path_factory.mktemp("gateway"), free_port(), *flags, **more))


@pytest.fixture
def start_gateway(tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]) -> Iterator[Callable[..., Gateway]]:
    with ExitStack() as stack:
        yield lambda *flags, **more: stack.enter_context(run_gateway(tmp_path_factory.mktemp("gateway"), free_port(), *flags, **more))


@pytest.fixture(scope="session")
def static_model() -> Callable[..., str]:
    """`static_model(name, *endpoints, **traffic)`: the flag."""
    return lambda name, *endpoints, **traffic: "--static-model=" + json.dumps({"name": name, "endpoints": endpoints, "traffic": traffic})
