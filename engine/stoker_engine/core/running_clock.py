"""RunningClock: the time in which this process ran."""

import time

from stoker_engine.protocol import HEARTBEAT_SECONDS

MAX_GAP_SECONDS = 2 * HEARTBEAT_SECONDS
"""It is ticked at least once per heartbeat; what is beyond this between two ticks the process was stopped for."""


class RunningClock:
    """Stands while the process is stopped, so that neither a step nor a peer's silence ages meanwhile. One thread ticks it, any may read it."""

    __slots__ = ("_mark",)

    def __init__(self) -> None:
        self._mark = (time.monotonic(), 0.0)

    def now(self) -> float:
        """Seconds, from an arbitrary beginning."""
        ticked, value = self._mark
        return value + min(time.monotonic() - ticked, MAX_GAP_SECONDS)

    def tick(self) -> None:
        self._mark = (time.monotonic(), self.now())
