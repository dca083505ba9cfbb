"""Watchdogs: they end a process whose main thread hangs, even in native code, from threads of their own."""

import threading
from collections.abc import Callable

from stoker_engine.core.pulse import EnginePulse

LONGEST_PERIOD_SECONDS = 1.0


class StartupDeadline:
    """Calls `on_expiry` if start-up is not `met` in time."""

    def __init__(self, seconds: float, on_expiry: Callable[[], None]) -> None:
        self._timer = threading.Timer(seconds, on_expiry)
        self._timer.daemon = True
        self._timer.start()

    def met(self) -> None:
        self._timer.cancel()


class HangWatch:
    """Calls `on_hang` once a step is older than `limit_seconds`."""

    def __init__(self, pulse: EnginePulse, limit_seconds: float, on_hang: Callable[[float], None]) -> None:
        self._pulse = pulse
        self._limit_seconds = limit_seconds
        self._on_hang = on_hang
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, name="hang-watch", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        period = min(LONGEST_PERIOD_SECONDS, self._limit_seconds / 4)
        while not self._stopped.wait(period):
            step_age = self._pulse.heartbeat().step_age
            if step_age > self._limit_seconds:
                self._on_hang(step_age)
                return
