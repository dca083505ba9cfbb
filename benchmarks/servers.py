"""The servers under test: `stoker up` on a file, and vllm's; each is asked for one token until it answers."""

import asyncio
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

import yaml

from load import NotReadyError, stream_completion
from options import Options
from peers import MAX_MODEL_LEN, VARIABLES, Peer
from processes import Program

BLOCK_BYTES = 16 * 30 * 2 * 3 * 64 * 2
"""A block of 16 tokens of SmolLM2-135M's keys and values in bfloat16, 30 layers of 3 heads of 64."""
START_SECONDS = 600.0
POLL_SECONDS = 0.02
SERVED_NAME = "model"


@dataclass(slots=True, frozen=True)
class Server:
    """A server that answers. `seconds_to_first_token` counts from the start of its first process."""

    url: str
    seconds_to_first_token: float
    program: Program

    @contextmanager
    def running(self) -> Iterator[None]:
        """Runs inside the block, having answered a first request, and stands still after it."""
        with self.program.running():
            _wait_for_first_token(self.url, self.program)
            yield


def engine_settings(options: Options, num_blocks: int) -> dict[str, str]:
    """The engine's settings in every benchmark, named as its flags; --set goes first."""
    return {"dtype": "bfloat16", "max-model-len": str(MAX_MODEL_LEN), "num-blocks-override": str(num_blocks), "log-level": "warning", **options.settings}


def manifest(model_uri: str, settings: Mapping[str, str], **spec: object) -> str:
    """The InferenceDeployment that `stoker up` is given; `spec` is what else is in it."""
    engine = {re.sub(r"-(\w)", lambda match: match[1].upper(), name): yaml.safe_load(value) for name, value in settings.items()}
    return yaml.safe_dump(
        {
            "apiVersion": "stoker.dev/v1alpha1",
            "kind": "InferenceDeployment",
            "metadata": {"name": "benchmark"},
            "spec": {"model": {"uri": model_uri, "servedName": SERVED_NAME}, "engine": engine, **spec},
        }
    )


@contextmanager
def stoker_server(model_uri: str, settings: Mapping[str, str], **spec: object) -> Iterator[Server]:
    """`stoker up -f` on a file with this model, from start to stop."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        path = Path(folder, "manifest.yaml")
        path.write_text(manifest(model_uri, settings, **spec), encoding="utf-8")
        command = [str(Path(sys.executable).with_name("stoker")), "up", "-f", str(path), "--port", str(port)]
        with _running(command, {}, port, Path(folder, "log")) as server:
            yield server


@contextmanager
def vllm_server(peer: Peer, num_blocks: int) -> Iterator[Server]:
    """vllm's server with as large a KV cache as ours, from start to stop."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        command = peer.serve_command(port, SERVED_NAME, num_blocks * BLOCK_BYTES)
        with _running(command, VARIABLES, port, Path(folder, "log")) as server:
            yield server


@contextmanager
def _running(command: Sequence[str], environment: Mapping[str, str], port: int, log_path: Path) -> Iterator[Server]:
    start = perf_counter()
    program = Program(command, environment, log_path)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for_first_token(url, program)
        yield Server(url, perf_counter() - start, program)
    finally:
        program.stop()


def _wait_for_first_token(url: str, program: Program) -> None:
    deadline = perf_counter() + START_SECONDS
    while perf_counter() < deadline:
        try:
            asyncio.run(stream_completion(url, SERVED_NAME, [1000, 1001], 1))
        except (OSError, NotReadyError):
            program.check_alive()
            sleep(POLL_SECONDS)
        else:
            return
    raise RuntimeError(f"no token within {START_SECONDS:.0f} s:\n{program.last_words()}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
