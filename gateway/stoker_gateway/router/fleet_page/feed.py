"""FleetFeed: tells whoever watches the fleet what is new, at most once a second. While nobody does, nothing is computed or kept."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from stoker_gateway.openai.errors import unavailable
from stoker_gateway.openai.streaming import event
from stoker_gateway.router.admission.admission import Admission
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.fleet_page.board import FleetBoard

TICK_SECONDS = 1.0
HEARTBEAT_SECONDS = 10.0
HEARTBEAT = b": nothing new\n\n"

MAX_WATCHERS = 16
"""At a time; it is a page for people."""


class FleetFeed:
    """Lives on one event loop. Watchers that are equally far get the very same bytes; one that reads slowly costs no memory."""

    def __init__(self, fleet: Fleet, admission: Admission) -> None:
        self._fleet = fleet
        self._admission = admission
        self._board = FleetBoard(fleet, admission)
        self._looking: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self.num_watchers = 0
        self._is_closed = False

    def close(self) -> None:
        """Ends every watcher's stream."""
        self._is_closed = True
        self._tell()

    @contextmanager
    def watcher(self) -> Iterator["Watcher"]:
        """Raises ApiError (503) where too many watch already."""
        if self.num_watchers >= MAX_WATCHERS:
            raise unavailable(f"{MAX_WATCHERS} others watch this gateway's fleet, more cannot; try again later.", "too_many_watchers")
        self.num_watchers += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(lambda _: self._tell())
        try:
            yield Watcher(self)
        finally:
            self.num_watchers -= 1
            if not self.num_watchers:
                self._looking.cancel()
                self._looking = None
                self._board = FleetBoard(self._fleet, self._admission)

    async def message(self, seen: int) -> tuple[bytes, int] | None:
        """What is new since that tick, and the tick that it leads to; None at the end. Waits for news, for a heartbeat at most."""
        while not self._is_closed:
            if self._looking is not None and self._looking.done():
                self._looking.result()
            if self._board.tick > seen:
                return event(self._board.message(seen)), self._board.tick
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                return HEARTBEAT, seen
        return None

    async def _look(self) -> None:
        while True:
            before = self._board.tick
            await self._board.look()
            if self._board.tick > before:
                self._tell()
            await asyncio.sleep(TICK_SECONDS)

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class Watcher:
    """One that watches, and how far it is."""

    def __init__(self, feed: FleetFeed) -> None:
        self._feed = feed
        self._seen = 0

    async def next(self) -> bytes | None:
        """The next event; None at the end."""
        if (message := await self._feed.message(self._seen)) is None:
            return None
        content, self._seen = message
        return content
