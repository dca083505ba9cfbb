"""Shutdown: RUNNING → REQUESTED → SHUTTING_DOWN, by draining or aborting, with the deadline kept here.

The first signal drains, the second aborts, the third kills; the end of the supervisor aborts. Before the engine is built a request to stop
ends the process at once, cleanly.
"""

import enum
import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from stoker_engine.exit_codes import ExitCode

logger = logging.getLogger(__name__)

ORPHAN_SECONDS = 10.0
"""A process whose supervisor is gone has this long to end by itself."""


class ShutdownState(enum.Enum):
    RUNNING = 0
    REQUESTED = 1
    SHUTTING_DOWN = 2


class ShutdownMode(enum.Enum):
    DRAIN = 0
    ABORT = 1


class Shutdown:
    """The state of one process's end. Signal handlers and the supervisor's watcher request; the main loop acts."""

    def __init__(self, drain_seconds: float, wake: Callable[[], None]) -> None:
        self.state = ShutdownState.RUNNING
        self.mode = ShutdownMode.DRAIN if drain_seconds > 0 else ShutdownMode.ABORT
        self.cause = ""
        self._drain_seconds = drain_seconds
        self._wake = wake
        self._deadline = 0.0
        self._loop_runs = False
        self._is_over = False

    def install_signal_handlers(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def watch_supervisor(self, fd: int) -> None:
        """End of file on `fd` means that the supervisor is gone."""
        threading.Thread(target=self._watch_supervisor, args=(fd,), name="supervisor-watch", daemon=True).start()

    def hand_to_loop(self) -> None:
        """From here on the main loop acts on requests; until now a signal ended the process by itself."""
        self._loop_runs = True
        if self.state is not ShutdownState.RUNNING:
            raise SystemExit(ExitCode.OK)

    def ignore_signals(self) -> None:
        """The process is ending: nothing may cut its last words short. From any thread."""
        self._is_over = True

    def begin(self) -> None:
        """The loop has seen the request: the drain's clock starts."""
        self.state = ShutdownState.SHUTTING_DOWN
        self._deadline = time.monotonic() + self._drain_seconds

    @property
    def must_abort(self) -> bool:
        """Aborting was asked for, or the drain's time is over."""
        return self.mode is ShutdownMode.ABORT or time.monotonic() >= self._deadline

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._is_over:
            return
        name = signal.Signals(number).name
        if not self._loop_runs:
            self.cause = name
            self.state = ShutdownState.REQUESTED  # should the exception be swallowed, in a __del__ say, hand_to_loop raises it again
            raise SystemExit(ExitCode.OK)
        if self.state is ShutdownState.RUNNING:
            self._request(name)
        elif self.mode is ShutdownMode.DRAIN:
            self.mode = ShutdownMode.ABORT
            self._wake()
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def _request(self, cause: str) -> None:
        self.cause = cause
        self.state = ShutdownState.REQUESTED
        self._wake()

    def _watch_supervisor(self, fd: int) -> None:
        try:
            _wait_for_end_of_file(fd)
        except OSError as error:
            logger.error("--supervisor-fd %d cannot be read: %s", fd, error.strerror)
        logger.warning("the supervisor is gone: stopping")
        self.mode = ShutdownMode.ABORT
        if self.state is ShutdownState.RUNNING:
            self._request("supervisor gone")
        if not self._loop_runs:
            os._exit(ExitCode.OK)
        time.sleep(ORPHAN_SECONDS)
        os._exit(ExitCode.FAILED)


def _wait_for_end_of_file(fd: int) -> None:
    """Whatever the descriptor's mode: a pipe that several processes inherit is shared, and another may have made it non-blocking."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    while True:
        poller.poll()
        try:
            if not os.read(fd, 4096):
                return
        except BlockingIOError:
            continue
