"""WorkerThread: one thread that makes calls in order, so that a step can be prepared while another one is computed."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

JOIN_SECONDS = 10.0
"""How long `close` waits for calls under way. The thread is a daemon: one that hangs in native code cannot keep the process."""


class WorkerThread:
    """Everything that torch does belongs on one thread: each thread that runs parallel ops gets a pool of OpenMP threads of its own."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)
        self._thread.start()

    def submit(self, call: Callable[..., T], *args: Any) -> Future[T]:
        """Makes `call(*args)` after the calls before it."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                result = call(*args)
            except BaseException as error:  # noqa: BLE001 - the future raises it where it is waited for
                future.set_exception(error)
            else:
                future.set_result(result)

        self._calls.put(run)
        return future

    def close(self) -> None:
        """Ends the thread after the calls made so far."""
        self._calls.put(None)
        self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
