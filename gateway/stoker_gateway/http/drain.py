"""How the api stops: it refuses new work, lets running requests finish until a deadline, then aborts them."""

import asyncio
import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from stoker_gateway.openai.errors import draining

ClientAddress: TypeAlias = tuple[str, int]
"""Host and port: the other end of a connection."""

ABORT_SECONDS = 5.0
"""How long aborted requests have to send their last events to clients that read them."""

ARRIVAL_SECONDS = 1.0
"""How long a request that is still coming in has for the rest of it once the api drains."""


class StopStage(enum.IntEnum):
    """How often the process has been told to stop, and what that means."""

    SERVING = 0
    DRAINING = 1
    ABORTING = 2
    KILLED = 3


@dataclass(slots=True, frozen=True)
class DrainReport:
    """What became of the requests that were running when the drain began, or came over a connection that was open then."""

    in_flight_at_start: int
    aborted: int
    seconds: float

    @property
    def completed(self) -> int:
        return self.in_flight_at_start - self.aborted


class Drain:
    """Counts requests in flight, and ends them in time once the process is told to stop."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._requested = asyncio.Event()
        self._abort_requested = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._num_in_flight = 0
        self._num_begun = 0
        self._arriving: set[asyncio.Timeout] = set()
        self._last_answers: set[ClientAddress] = set()
        self.stage = StopStage.SERVING

    @property
    def is_draining(self) -> bool:
        return self.stage is not StopStage.SERVING

    async def requested(self) -> None:
        """Returns once the process is told to stop."""
        await self._requested.wait()

    @property
    def num_in_flight(self) -> int:
        return self._num_in_flight

    @contextmanager
    def in_flight(self) -> Iterator[None]:
        """Counts one request for as long as its response is being made and sent."""
        self._num_in_flight += 1
        self._num_begun += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._num_in_flight -= 1
            if not self._num_in_flight:
                self._idle.set()

    def last_answers(self, clients: Collection[ClientAddress]) -> None:
        """These connections were open when the drain began: each gets one more answer, and ends with it. A request may be on its way already."""
        self._last_answers.update(clients)

    def admits(self, client: ClientAddress | None) -> bool:
        """Whether work that comes over this connection is taken on."""
        if not self.is_draining:
            return True
        if self.stage is not StopStage.DRAINING or client is None or client not in self._last_answers:
            return False
        self._last_answers.discard(client)
        return True

    @asynccontextmanager
    async def arrival(self) -> AsyncIterator[asyncio.Timeout]:
        """While a request's body comes in. The timeout is the caller's to set, until the drain sets it: nobody is to wait for who sends half of one.

        Raises TimeoutError for the caller's time, ApiError (503) for that of the drain.
        """
        try:
            async with asyncio.timeout(ARRIVAL_SECONDS if self.is_draining else None) as timeout:
                self._arriving.add(timeout)
                try:
                    yield timeout
                finally:
                    self._arriving.discard(timeout)
        except TimeoutError:
            if self.is_draining:
                raise draining() from None
            raise

    def request_stop(self) -> StopStage:
        """One signal more: the first drains, the second aborts, the third is for the caller to act on."""
        self._end_arrivals()
        self.stage = StopStage(min(self.stage + 1, StopStage.KILLED))
        self._requested.set()
        if self.stage is not StopStage.DRAINING:
            self._abort_requested.set()
        return self.stage

    def request_abort(self) -> None:
        """Aborts, also without a drain before."""
        self._end_arrivals()
        self.stage = max(self.stage, StopStage.ABORTING)
        self._requested.set()
        self._abort_requested.set()

    def _end_arrivals(self) -> None:
        if not self.is_draining:
            deadline = asyncio.get_running_loop().time() + ARRIVAL_SECONDS
            for timeout in self._arriving:
                if not timeout.expired():
                    timeout.reschedule(deadline)

    async def run(self, can_finish: Callable[[], Awaitable[bool]], abort_all: Callable[[], Awaitable[None]]) -> DrainReport:
        """Waits for `request_stop`, then until no request is left.

        `abort_all` is called at the deadline, at the second request to stop, or where `can_finish`, called once at the start, says that nothing can.
        """
        await self._requested.wait()
        loop = asyncio.get_running_loop()
        started = loop.time()
        num_ended_before = self._num_begun - self._num_in_flight
        async with asyncio.TaskGroup() as tasks:
            check = tasks.create_task(self._abort_unless(can_finish))
            await self._until_idle_or_aborted(started + self._timeout_seconds)
            check.cancel()
        num_in_drain = self._num_begun - num_ended_before
        num_aborted = self._num_in_flight
        if num_aborted:
            await abort_all()
            await _first_of(self._idle, asyncio.Event(), ABORT_SECONDS)
        return DrainReport(num_in_drain, num_aborted, loop.time() - started)

    async def _until_idle_or_aborted(self, deadline: float) -> None:
        """Another request may come over a connection that is kept when the last one has just ended."""
        loop = asyncio.get_running_loop()
        while self._num_in_flight and not self._abort_requested.is_set() and (rest := deadline - loop.time()) > 0:
            await _first_of(self._idle, self._abort_requested, rest)

    async def _abort_unless(self, can_finish: Callable[[], Awaitable[bool]]) -> None:
        if not await can_finish():
            self._abort_requested.set()


async def _first_of(first: asyncio.Event, second: asyncio.Event, timeout_seconds: float) -> None:
    """Returns when one of the events is set, or after the time."""
    waits = [asyncio.create_task(event.wait()) for event in (first, second)]
    try:
        await asyncio.wait(waits, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
