"""RunningClock: the time in which a thread or an event loop ran."""

import asyncio
import time


class RunningClock:
    """Stands while whoever ticks it is kept from that, by long work or because the process is stopped: nothing ages, and no peer is silent, meanwhile.

    At most `max_gap_seconds` pass between two ticks. One thread ticks it, any may read it.
    """

    __slots__ = ("_mark", "_max_gap_seconds")

    def __init__(self, max_gap_seconds: float) -> None:
        self._max_gap_seconds = max_gap_seconds
        self._mark = (time.monotonic(), 0.0)

    def now(self) -> float:
        """Seconds, from an arbitrary beginning."""
        ticked, value = self._mark
        return value + min(time.monotonic() - ticked, self._max_gap_seconds)

    def tick(self) -> None:
        self._mark = (time.monotonic(), self.now())

    async def run(self) -> None:
        """Ticks in this event loop until it is cancelled."""
        while True:
            await asyncio.sleep(self._max_gap_seconds / 2)
            self.tick()
