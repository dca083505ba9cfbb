"""BoundedCalls: work that cannot be interrupted, and is waited for only so long. It must let go of the GIL where it takes its time."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

from stoker_engine.errors import EngineBusyError

ResultT = TypeVar("ResultT")

MAX_OVERDUE = 2
"""Calls that nobody waits for any more and that still run, each on what the steps leave of a core. Beyond them, nobody new is let in."""
MAX_OVERDUE_OF_ALL = 8
"""Beyond them nothing is begun, for those who were let in before either."""
NICENESS = 19
_POLL_SECONDS = 0.05


class OverdueError(Exception):
    """The call takes longer than it may. It goes on where nobody waits for it, and its result is never seen."""


class BoundedCalls:
    """Runs calls one after the other, on a thread that is left to itself, and replaced, when a call takes too long. Used by one thread at a time."""

    def __init__(self) -> None:
        self._thread: _Thread | None = None
        self._overdue: list[_Thread] = []

    def check_room(self) -> None:
        """Before somebody's first call. Raises EngineBusyError."""
        self._check_overdue(MAX_OVERDUE)

    def run(self, work: Callable[[], ResultT], cpu_seconds: float) -> ResultT:
        """What `work` returns or raises. CPU time counts, so that a busy machine ends nothing. Raises OverdueError; EngineBusyError where too much is."""
        self._check_overdue(MAX_OVERDUE_OF_ALL)
        if self._thread is None:
            self._thread = _Thread()
        thread, result = self._thread, Future[ResultT]()
        end = thread.cpu_seconds() + cpu_seconds
        thread.calls.put(lambda: _run(work, result))
        while not _is_over(result):
            if thread.cpu_seconds() > end:
                self._leave(thread)
                raise OverdueError
        return result.result()

    def close(self) -> None:
        """A call that is overdue goes on until it, or the process, ends."""
        if self._thread is not None:
            self._thread.calls.put(None)
            self._thread = None

    def _check_overdue(self, limit: int) -> None:
        if not self._overdue:
            return
        self._overdue = [thread for thread in self._overdue if thread.is_alive()]
        if len(self._overdue) >= limit:
            raise EngineBusyError("grammars of other requests are too ambiguous to follow, and still take the time of this one; try again later")

    def _leave(self, thread: "_Thread") -> None:
        thread.calls.put(None)
        with suppress(OSError):  # it has ended just now
            os.setpriority(os.PRIO_PROCESS, thread.native_id or 0, NICENESS)
        self._overdue.append(thread)
        self._thread = None


class _Thread(threading.Thread):
    """Ends with None. A daemon: the process does not wait for what is overdue."""

    def __init__(self) -> None:
        super().__init__(name="grammar-match", daemon=True)
        self.calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.start()

    def run(self) -> None:
        while (call := self.calls.get()) is not None:
            call()
            del call  # with what it holds

    def cpu_seconds(self) -> float:
        """Of a live thread."""
        return time.clock_gettime(time.pthread_getcpuclockid(self.ident or 0))


def _run(work: Callable[[], ResultT], result: Future[ResultT]) -> None:
    try:
        value = work()
    except Exception as error:  # noqa: BLE001 - it is raised where the call was made
        result.set_exception(error)
    else:
        result.set_result(value)


def _is_over(result: Future[ResultT]) -> bool:
    """Waits a little for it."""
    with suppress(TimeoutError):
        result.exception(_POLL_SECONDS)
    return result.done()
