"""A download in a real engine process: what it reports, and how it is told to stop."""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stoker_engine.config import EngineConfig, LifecycleConfig, ModelConfig
from stoker_engine.settings import to_args

MODEL = "org/tiny"
DEADLINE_SECONDS = 30.0

ENGINE = """
import os, sys
import stoker_engine.hub.fetch  # a busy machine may take seconds for its imports
from stoker_engine.config import EngineConfig
from stoker_engine.core import watchdog
from stoker_engine.core.run import EngineProcess
from stoker_engine.model_fetch import fetch_weights
from stoker_engine.settings import from_args
from stoker_engine.testing import Script, ScriptedExecutor

class Fetching(ScriptedExecutor):
    def __init__(self, config):
        super().__init__(Script())
        self.config = config

    def fetch_model(self, on_progress):
        fetch_weights(self.config.model, self.config.model_cache_dir, self.config.socket_dir).wait(on_progress)

watchdog.process_age = lambda: 0.0  # and those are over
os._exit(EngineProcess(from_args(EngineConfig, sys.argv[1:], program="engine"), Fetching).run())
"""


class Engine:
    """A real engine process whose scripted model is downloaded first."""

    def __init__(self, config: EngineConfig, process: "subprocess.Popen[bytes]") -> None:
        self.config = config
        self.process = process

    def startup(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.config.health_port}/startupz", timeout=5) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                return dict(json.load(error))
        except OSError:
            return {"phase": "not there yet"}

    def wait_for(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition(report := self.startup()):
            assert time.monotonic() < deadline and self.process.poll() is None, report
            time.sleep(0.02)
        return report

    def last_words(self) -> dict[str, Any]:
        return dict(json.loads(Path(self.config.termination_message_path).read_text()))


@pytest.fixture
def start(hub: Any, tiny_files: dict[str, bytes], tmp_path: Path, socket_dir: str, free_port: Callable[[], int]) -> Callable[..., Any]:
    hub.add_model(MODEL, tiny_files)

    @contextmanager
    def run(startup_timeout: str = "30s") -> Iterator[Engine]:
        config = EngineConfig(
            model=ModelConfig(uri=f"hf://{MODEL}"),
            lifecycle=LifecycleConfig(startup_timeout=startup_timeout),
            model_cache_dir=str(tmp_path / "cache"),
            socket_dir=socket_dir,
            health_host="127.0.0.1",
            health_port=free_port(),
            termination_message_path=str(tmp_path / "termination.json"),
            log_level="warning",
        )
        process = subprocess.Popen([sys.executable, "-c", ENGINE, *to_args(config)])
        try:
            yield Engine(config, process)
        finally:
            process.kill()
            process.wait()

    return run


def test_a_download_is_a_phase_with_numbers_and_sigterm_ends_it_at_once(hub: Any, start: Callable[..., Any]) -> None:
    hub.gate.clear()
    with start() as engine:
        report = engine.wait_for(lambda report: report.get("bytes", 0) > 0)
        assert report["phase"] == "downloading" and 0 < report["bytes"] < report["sizeBytes"]
        assert len(report["revision"]) == 40 and 0 < report["progress"] < 1
        engine.process.send_signal(signal.SIGTERM)
        assert engine.process.wait(DEADLINE_SECONDS) == 0
        assert (engine.last_words()["reason"], engine.last_words()["phase"]) == ("Aborted", "downloading")


def test_what_was_downloaded_is_told_as_long_as_the_engine_runs(hub: Any, start: Callable[..., Any]) -> None:
    with start() as engine:
        report = engine.wait_for(lambda report: report["phase"] == "ready")
        assert report["bytes"] == report["sizeBytes"] and len(report["revision"]) == 40
        assert "bytesPerSecond" not in report and "etaSeconds" not in report


def test_a_start_that_waits_for_the_hub_too_long_says_so(hub: Any, start: Callable[..., Any], make_answer: Callable[..., Any]) -> None:
    hub.answers = [make_answer("GET /api/models/*", status=429, headers={"Retry-After": "600"}, times=100)]
    with start(startup_timeout="2s") as engine:
        assert engine.process.wait(DEADLINE_SECONDS) == 3
        words = engine.last_words()
        assert words["reason"] == "StartupTimeout"
        assert "in phase downloading" in words["lastError"] and "limits the rate of requests (429); next attempt in 601 s" in words["lastError"]


def test_a_refused_download_ends_the_engine_with_its_reason(hub: Any, start: Callable[..., Any]) -> None:
    hub.token = "hf_right"
    with start() as engine:
        assert engine.process.wait(DEADLINE_SECONDS) == 4
        assert engine.last_words()["reason"] == "AuthRequired"
        assert "set HF_TOKEN" in engine.last_words()["lastError"]
