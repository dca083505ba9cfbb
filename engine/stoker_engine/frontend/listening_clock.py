"""ListeningClock: the time in which an event loop could have heard something."""

import asyncio
import time

TICK_SECONDS = 0.25


class ListeningClock:
    """Stands while the loop is kept from its sockets, by long work or because the process is stopped: what nobody listened for is nobody's silence."""

    def __init__(self) -> None:
        self._ticked = time.monotonic()
        self._value = 0.0

    def now(self) -> float:
        """Seconds, from an arbitrary beginning."""
        return self._value + min(time.monotonic() - self._ticked, 2 * TICK_SECONDS)

    def tick(self) -> None:
        self._value, self._ticked = self.now(), time.monotonic()

    async def run(self) -> None:
        """Ticks until it is cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.tick()
