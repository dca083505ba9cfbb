"""Shutdown: RUNNING → REQUESTED → SHUTTING_DOWN, by draining or aborting, with the deadline kept here.

The first signal drains, the second aborts, the third kills; the end of the supervisor aborts. Before the engine is built a request to stop
ends the process at once, cleanly.
"""

import enum
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Protocol

from stoker_engine.core.watchdog import call_later
from stoker_engine.exit_codes import ExitCode

logger = logging.getLogger(__name__)

ORPHAN_SECONDS = 10.0
"""A process whose supervisor is gone has this long to end by itself."""
UNWIND_SECONDS = 1.0
"""How long a main thread that loads the model has to end by itself: in native code it hears of nothing."""


class ShutdownState(enum.Enum):
    RUNNING = 0
    REQUESTED = 1
    SHUTTING_DOWN = 2


class ShutdownMode(enum.Enum):
    DRAIN = 0
    ABORT = 1


class EndByForce(Protocol):
    """How the process ends where its main thread does not end it. From any thread; neither returns."""

    def abort_start(self) -> None:
        """A request to stop while the model loads, which the main thread has not heard."""

    def kill(self) -> None:
        """The third signal."""


class Shutdown:
    """The state of one process's end. The signal thread and the supervisor's watcher request; the main loop acts."""

    def __init__(self, drain_seconds: float, wake: Callable[[], None], force: EndByForce) -> None:
        self.state = ShutdownState.RUNNING
        self.mode = ShutdownMode.DRAIN if drain_seconds > 0 else ShutdownMode.ABORT
        self.cause = "a signal"
        self._drain_seconds = drain_seconds
        self._wake = wake
        self._force = force
        self._deadline = 0.0
        self._num_signals = 0
        self._loop_runs = False
        self._is_over = False

    def stop_requested(self, cause: str) -> None:
        """One signal more."""
        self._num_signals += 1
        if self._num_signals == 1:
            self._request(cause)
        elif self._num_signals == 2:
            self.mode = ShutdownMode.ABORT
            self._wake()
        else:
            self._force.kill()

    @property
    def ends_by_exception(self) -> bool:
        """Until the loop runs, a signal ends what the main thread does."""
        return not self._loop_runs and not self._is_over

    def watch_supervisor(self, fd: int) -> None:
        """End of file on `fd` means that the supervisor is gone."""
        threading.Thread(target=self._watch_supervisor, args=(fd,), name="supervisor-watch", daemon=True).start()

    def hand_to_loop(self) -> None:
        """From here on the main loop acts on requests; until now one ended the process by itself."""
        self._loop_runs = True
        if self.state is not ShutdownState.RUNNING:
            raise SystemExit(ExitCode.OK)

    def over(self) -> None:
        """The process is ending: no exception may cut its last words short. From any thread."""
        self._is_over = True

    def begin(self) -> None:
        """The loop has seen the request: the drain's clock starts."""
        self.state = ShutdownState.SHUTTING_DOWN
        self._deadline = time.monotonic() + self._drain_seconds

    @property
    def must_abort(self) -> bool:
        """Aborting was asked for, or the drain's time is over."""
        return self.mode is ShutdownMode.ABORT or time.monotonic() >= self._deadline

    def _request(self, cause: str) -> None:
        self.cause = cause
        if self.state is ShutdownState.RUNNING:
            self.state = ShutdownState.REQUESTED
        self._wake()
        if not self._loop_runs:
            call_later(UNWIND_SECONDS, self._end_start)

    def _end_start(self) -> None:
        if self.ends_by_exception:
            self._force.abort_start()

    def _watch_supervisor(self, fd: int) -> None:
        try:
            _wait_for_end_of_file(fd)
        except OSError as error:
            logger.error("--supervisor-fd %d cannot be read: %s", fd, error.strerror)
        logger.warning("the supervisor is gone: stopping")
        self.mode = ShutdownMode.ABORT
        self._request("supervisor gone")
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
