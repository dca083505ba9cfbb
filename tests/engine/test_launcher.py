import gc
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from stoker_engine.errors import ConfigError, EngineDeadError, EngineError, ModelLoadError
from stoker_engine.launcher import LaunchedEngine
from stoker_engine.llm_engine import launch
from stoker_engine.socket_directories import local_root
from stoker_engine.testing import Script, fake_engine_config

END_SECONDS = 15.0

PARENT = """
import sys
from stoker_engine.llm_engine import launch
from stoker_engine.testing import fake_engine_config

process, client = launch(fake_engine_config("/unused"), ("-m", "stoker_engine.testing", "{}"))
sys.stdout.write(f"{process.pid} {process.config.socket_dir}\\n")
sys.stdout.flush()
sys.stdin.read()
"""


def program(script: Script) -> tuple[str, ...]:
    return "-m", "stoker_engine.testing", msgspec.json.encode(script).decode()


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    def seen() -> tuple[set[int], set[str]]:
        children = {child.pid for child in psutil.Process().children()}
        return children, {path.name for path in local_root().iterdir()} if local_root().is_dir() else set()

    before = seen()
    yield
    children, directories = seen()
    assert children <= before[0]
    assert not [name for name in directories - before[1] if is_ours(local_root() / name)]


def is_ours(directory: Path) -> bool:
    """Others on this machine start engines, too."""
    try:
        return f"{os.getpid()}" in (directory / "api.lock").read_text()
    except OSError:
        return False


@pytest.mark.property("P56")
@pytest.mark.fault("A2", "A5")
@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        (Script(load_error="tensor 7 is missing"), ModelLoadError, r"exit code 4: .*tensor 7 is missing"),
        (Script(exit_code=11), EngineDeadError, r"ended with exit code 11"),
    ],
    ids=["told", "silent"],
)
def test_a_start_that_fails_says_why_and_leaves_nothing(script: Script, kind: type[EngineError], words: str) -> None:
    with pytest.raises(kind, match=words):
        launch(fake_engine_config("/unused"), program(script))


@pytest.mark.property("P56")
@pytest.mark.fault("A2")
def test_a_program_that_cannot_run_at_all_has_its_last_line_told() -> None:
    with pytest.raises(EngineDeadError, match=r"exit code 1: .*No module named stoker_engine\.nothing"):
        launch(fake_engine_config("/unused"), ("-m", "stoker_engine.nothing"))


def test_a_setting_that_the_engine_refuses_is_a_config_error() -> None:
    config = msgspec.structs.replace(fake_engine_config("/unused"), max_model_len=8192, num_blocks_override=2)
    with pytest.raises(ConfigError, match=r"exit code 2: .*8192"):
        launch(config, program(Script()))


@pytest.mark.property("P56")
@pytest.mark.fault("A1", "A3")
def test_a_start_past_its_deadline_names_the_phase() -> None:
    config = fake_engine_config("/unused")
    config = msgspec.structs.replace(config, lifecycle=msgspec.structs.replace(config.lifecycle, startup_timeout="300ms"))
    with pytest.raises(EngineDeadError, match=r"exit code 3: not ready after 300ms .*in phase"):
        launch(config, program(Script(hang_in_load=True)))


def test_shutdown_ends_the_process_and_removes_the_directory() -> None:
    process, client = launch(fake_engine_config("/unused"), program(Script()))
    pid, directory = process.pid, Path(process.config.socket_dir)
    assert directory.stat().st_mode & 0o777 == 0o700
    client.shutdown()
    process.shutdown()
    process.shutdown()
    assert process.has_ended and not psutil.pid_exists(pid)
    assert not directory.exists()


@pytest.mark.fault("F6")
def test_an_engine_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker_engine.launcher.STOP_SECONDS", 0.2)
    process, client = launch(fake_engine_config("/unused"), program(Script(ignore_sigterm_seconds=60)))
    os.kill(process.pid, signal.SIGSTOP)
    client.shutdown()
    process.shutdown()
    assert process.has_ended


def test_dropping_the_engine_ends_its_process() -> None:
    process, client = launch(fake_engine_config("/unused"), program(Script()))
    pid = process.pid
    client.shutdown()
    del process
    assert not psutil.pid_exists(pid)


def test_an_engine_that_the_reader_of_its_stderr_collects_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Collecting(io.StringIO):
        def write(self, text: str) -> int:
            gc.collect()
            return super().write(text)

    class InACycle(LaunchedEngine):
        def __init__(self) -> None:
            super().__init__(fake_engine_config("/unused"), ("-c", "import sys, time; sys.stderr.write('hello\\n'); time.sleep(60)"))
            self.cycle = self

    monkeypatch.setattr("sys.stderr", Collecting())
    process = InACycle()
    process.start()
    pid, directory = process.pid, Path(process.config.socket_dir)
    (reader,) = [thread for thread in threading.enumerate() if thread.name == "engine-stderr"]
    del process
    reader.join(END_SECONDS)
    assert not psutil.pid_exists(pid)
    assert not directory.exists()


def test_an_engine_runs_on_where_our_stderr_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)
    monkeypatch.setattr("stoker_engine.launcher.END_SECONDS", END_SECONDS)
    process = LaunchedEngine(fake_engine_config("/unused"), ("-c", "import sys; sys.stderr.writelines(f'line {i}\\n' for i in range(20_000)); sys.exit(7)"))
    process.start()
    assert str(process.failure()) == "the engine ended with exit code 7: line 19999"
    process.shutdown()


@pytest.mark.property("P54")
@pytest.mark.fault("B1")
def test_an_engine_ends_with_the_process_that_started_it() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, directory = parent.stdout.readline().split()
        engine = psutil.Process(int(pid))
        parent.kill()
        parent.wait()
    engine.wait(END_SECONDS)
    probe = LaunchedEngine(fake_engine_config("/unused"))  # making a directory sweeps those whose owner was killed
    assert not Path(directory).exists()
    probe.shutdown()


@pytest.mark.property("P54")
@pytest.mark.fault("B1")
def test_an_interpreter_that_ends_takes_its_engine_along() -> None:
    done = subprocess.run([sys.executable, "-c", PARENT], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True)
    pid, directory = done.stdout.split()
    assert not psutil.pid_exists(int(pid))
    assert not Path(directory).exists()
    assert "Traceback" not in done.stderr
