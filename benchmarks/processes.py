"""Programs under test as child processes that stand still while another one is measured."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

STOP_SECONDS = 60.0
TAIL_BYTES = 3000
DRIVERS = Path(__file__).parent / "drivers"


class Program:
    """A child process and its descendants, whose output goes to a log file."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log_path: Path, *, stdin: int | None = None, stdout: int | None = None) -> None:
        self._command = command
        self._log_path = log_path
        self._known = set[psutil.Process]()
        with log_path.open("wb") as log:
            self.process = subprocess.Popen(command, env={**os.environ, **environment}, stdin=stdin, stdout=log if stdout is None else stdout, stderr=log)

    def family(self) -> list[psutil.Process]:
        """The process and its descendants, parents first; empty once it has ended."""
        try:
            parent = psutil.Process(self.process.pid)
            family = [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
        self._known.update(family)
        return family

    def pss_bytes(self) -> int:
        """Proportional set size of all, in which shared pages count once. Raises RuntimeError as `check_alive`."""
        self.check_alive()
        return sum(int(process.memory_full_info().pss) for process in self.family())

    @contextmanager
    def running(self) -> Iterator[None]:
        """Runs inside the block and stands still after it, so that it takes nothing from others."""
        self._signal(signal.SIGCONT, self.family())
        try:
            yield
        finally:
            self.stand_still()

    def stand_still(self) -> None:
        """Until `running` or `stop`."""
        self._signal(signal.SIGSTOP, self.family())

    def check_alive(self) -> None:
        """Raises RuntimeError with its last words where it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{' '.join(self._command)[:300]} ended with {self.process.returncode}:\n{self.last_words()}")

    def last_words(self) -> str:
        return self._log_path.read_bytes()[-TAIL_BYTES:].decode(errors="replace")

    def stop(self) -> None:
        """SIGTERM, then to what of its descendants is left; SIGKILL for those that do not end in time.

        An interrupt reaches all processes of a terminal: this one may have ended before, while a descendant of it that stands still has nobody else to go on.
        """
        self.family()
        self._signal(signal.SIGCONT, self._known)
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        descendants = [process for process in self._known if process.pid != self.process.pid]
        self._signal(signal.SIGTERM, descendants)
        self._signal(signal.SIGKILL, psutil.wait_procs(descendants, timeout=STOP_SECONDS)[1])
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    @staticmethod
    def _signal(number: signal.Signals, processes: Iterable[psutil.Process]) -> None:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


class Driver(Program):
    """A program of drivers/, ready to be asked. Raises RuntimeError with its last words where it ends."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log_path: Path) -> None:
        super().__init__(command, environment, log_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self._read()
        except BaseException:
            self.stop()
            raise

    def ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: reading says how
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.check_alive()
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def running_driver(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[Driver]:
    """A driver that stands still until it is asked within `running`."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        driver = Driver(command, environment, Path(folder, "log"))
        try:
            driver.stand_still()
            yield driver
        finally:
            driver.stop()
