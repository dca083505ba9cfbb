"""SIGINT, SIGTERM and SIGHUP, counted: the first drains, the second aborts, the third kills."""

import asyncio
import signal
from collections.abc import Callable
from types import TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Installed on the running loop while entered. A signal that was ignored from the start (`nohup`) stays ignored."""

    def __init__(self, on_abort: Callable[[], None], on_kill: Callable[[], None]) -> None:
        self._on_abort = on_abort
        self._on_kill = on_kill
        self._received: list[signal.Signals] = []
        self._installed: list[signal.Signals] = []
        self.stop_requested = asyncio.Event()

    @property
    def cut_short_by(self) -> signal.Signals | None:
        """The signal that ended the drain before its time."""
        return self._received[1] if len(self._received) > 1 else None

    @property
    def first(self) -> signal.Signals | None:
        """The signal that asked to stop."""
        return self._received[0] if self._received else None

    def __enter__(self) -> "StopSignals":
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._receive, number)
                self._installed.append(number)
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        for number in self._installed:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _receive(self, number: signal.Signals) -> None:
        self._received.append(number)
        if len(self._received) == 1:
            self.stop_requested.set()
        elif len(self._received) == 2:
            self._on_abort()
        else:
            self._on_kill()
