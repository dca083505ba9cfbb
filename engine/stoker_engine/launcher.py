"""Starts an engine process for a client in this process, and tells why one that ended did."""

import collections
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from stoker_engine.config import EngineConfig
from stoker_engine.errors import ConfigError, EngineDeadError, EngineError, ModelLoadError
from stoker_engine.exit_codes import ExitCode
from stoker_engine.settings import to_args
from stoker_engine.socket_directories import SocketDirectories, local_root
from stoker_engine.supervisor_pipe import SupervisorPipe
from stoker_engine.termination import read_termination_message

ENGINE_PROGRAM = ("-m", "stoker_engine")
STOP_SECONDS = 5.0
"""From SIGTERM to SIGKILL. The client has gone before, so there is nothing to drain."""
END_SECONDS = 1.0
"""The end of an engine is noticed by its closed link, a moment before the process itself has ended."""
MAX_LAST_LINES = 20

_ERRORS: dict[int, type[EngineError]] = {ExitCode.BAD_CONFIG: ConfigError, ExitCode.MODEL_LOAD_FAILED: ModelLoadError}


class LaunchedEngine:
    """An engine process with a socket directory of its own, `config.socket_dir`, where its client binds before `start`.

    The engine ends with this process, however that ends. `shutdown` leaves no process and no file behind; collection and exit do the same.
    """

    def __init__(self, config: EngineConfig, program: Sequence[str] = ENGINE_PROGRAM) -> None:
        self._resources = _Resources()
        self._finalizer = weakref.finalize(self, self._resources.release)
        directory = self._resources.directories.create()
        self.config = msgspec.structs.replace(
            config,
            socket_dir=str(directory),
            termination_message_path=str(directory / "engine.termination"),
            supervisor_fd=self._resources.supervisor.read_end,
        )
        self._command = (sys.executable, "-P", *program, *to_args(self.config))

    def start(self) -> None:
        """Raises OSError where the process cannot be started."""
        self._resources.start(self._command)

    @property
    def pid(self) -> int:
        return self._resources.running.pid

    @property
    def has_ended(self) -> bool:
        return self._resources.running.poll() is not None

    def failure(self) -> EngineError:
        """Why the engine has ended or is about to: its own last words, its exit code and signal."""
        return _failure(self._resources.wait(END_SECONDS), self._last_words())

    def shutdown(self) -> None:
        """Ends the engine within STOP_SECONDS, by SIGKILL if need be. Idempotent."""
        self._finalizer()

    def _last_words(self) -> str:
        message = read_termination_message(self.config.termination_message_path)
        return (message.last_error or message.reason) if message is not None else self._resources.last_line


class _Resources:
    """What must not outlive the client."""

    def __init__(self) -> None:
        self.directories = SocketDirectories(local_root())
        self.supervisor = SupervisorPipe()
        self._pid = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: collections.deque[str] = collections.deque(maxlen=MAX_LAST_LINES)
        self._reader: threading.Thread | None = None

    @property
    def running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise EngineDeadError("the engine has not been started")
        return self._process

    @property
    def last_line(self) -> str:
        """The last line that the process wrote to stderr."""
        return next((line for line in reversed(self._lines) if line.strip()), "")

    def start(self, command: Sequence[str]) -> None:
        read_fd, write_fd = os.pipe()
        try:
            # In a session of its own: a terminal's Ctrl-C is for this process, which then ends the engine.
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=write_fd, pass_fds=(self.supervisor.read_end,), start_new_session=True)
        except BaseException:
            os.close(read_fd)
            raise
        finally:
            os.close(write_fd)
        self._reader = threading.Thread(target=_forward, args=(read_fd, self._lines), name="engine-stderr", daemon=True)
        self._reader.start()

    def wait(self, timeout: float) -> int | None:
        """The exit code once the process has ended and its last line is read, negative for a signal; None if it still runs."""
        try:
            code = self.running.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        if self._reader is not None and self._reader is not threading.current_thread():  # where the collector may run, too
            self._reader.join(END_SECONDS)
        return code

    def release(self) -> None:
        if os.getpid() != self._pid:
            return  # a forked child has inherited what is not its own
        if self._process is not None:
            self._end(self._process)
        self.supervisor.close()
        self.directories.remove_all()

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        process.terminate()
        if self.wait(STOP_SECONDS) is None:
            process.kill()
            process.wait()


def _forward(read_fd: int, lines: collections.deque[str]) -> None:
    """The engine's stderr is ours. Its last lines are kept."""
    with open(read_fd, "rb") as stream:
        for raw in stream:
            line = raw.decode(errors="replace").rstrip("\n")
            lines.append(line)
            with suppress(OSError, ValueError):  # ours may be closed; the engine's must be read, or it stands still when the pipe is full
                sys.stderr.write(f"{line}\n")


def _failure(code: int | None, words: str) -> EngineError:
    if code is None:
        return EngineDeadError(f"the engine does not answer{': ' + words if words else ''}")
    if code < 0:
        return EngineDeadError(f"the engine was killed by {signal.Signals(-code).name}{': ' + words if words else ''}")
    return _ERRORS.get(code, EngineDeadError)(f"the engine ended with exit code {code}{': ' + words if words else ''}")
