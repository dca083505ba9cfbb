"""Watchdogs: they end a process whose main thread hangs, even in native code, from threads of their own."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from stoker_engine.core.pulse import EnginePulse

LONGEST_PERIOD_SECONDS = 1.0


def call_later(delay_seconds: float, action: Callable[[], None]) -> threading.Timer:
    """Calls `action` on a daemon thread, unless cancelled before."""
    timer = threading.Timer(delay_seconds, action)
    timer.daemon = True
    timer.start()
    return timer


def process_age() -> float:
    """Seconds since this process was started: the interpreter and its imports count."""
    started_ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK"))


class StartupDeadline:
    """Calls `on_expiry` if start-up is not `met` in time, counted from the start of the process."""

    def __init__(self, seconds: float, on_expiry: Callable[[], None]) -> None:
        self._timer = call_later(max(0.0, seconds - process_age()), on_expiry)

    def met(self) -> None:
        self._timer.cancel()


class HangWatch:
    """Calls `on_hang` with the reason once the loop has not turned, or has computed nothing of the work it has, for longer than `limit_seconds`."""

    def __init__(self, pulse: EnginePulse, limit_seconds: float, on_hang: Callable[[str], None]) -> None:
        self._pulse = pulse
        self._limit_seconds = limit_seconds
        self._on_hang = on_hang
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, name="hang-watch", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        period = min(LONGEST_PERIOD_SECONDS, self._limit_seconds / 4)
        turn, progress = _Unchanged(2 * period), _Unchanged(2 * period)
        while not self._stopped.wait(period):
            pulse = self._pulse
            turn_age = turn.observe(pulse.last_turn)
            idle_age = progress.observe(pulse.num_steps if pulse.num_requests else None)
            if turn_age > self._limit_seconds:
                what = "a step has been running" if pulse.is_in_step else "the loop has not turned"
                self._on_hang(f"{what} for {turn_age:.0f} s")
            elif idle_age > self._limit_seconds:
                self._on_hang(f"{pulse.num_requests} requests have waited and nothing was computed for {idle_age:.0f} s")
            else:
                continue
            return


class _Unchanged:
    """For how long a value that is looked at again and again has stayed the same; None is nothing to wait for.

    At most `max_gap_seconds` are counted between two looks: a process that was stopped for a while has not been hanging.
    """

    def __init__(self, max_gap_seconds: float) -> None:
        self._max_gap_seconds = max_gap_seconds
        self._value: float | None = None
        self._looked = time.monotonic()
        self._age = 0.0

    def observe(self, value: float | None) -> float:
        now = time.monotonic()
        gap = min(now - self._looked, self._max_gap_seconds)
        self._age = self._age + gap if value is not None and value == self._value else 0.0
        self._looked, self._value = now, value
        return self._age
