"""UpstreamPool: the connections to one replica. As many as are needed at once; idle ones are kept for the next requests, not for long."""

import asyncio
import errno
from collections import deque

from stoker_gateway.router.fleet_view import Address
from stoker_gateway.router.upstream_connection import UpstreamConnection
from stoker_gateway.router.upstream_errors import ConnectError, NoSocketError

IDLE_SECONDS = 60.0
"""Less than the api keeps an idle connection (75 s): it is this end that closes it."""

MAX_AGE_SECONDS = 600.0
MAX_REQUESTS = 10_000
"""Then a connection is not used again: none grows old, whatever is between here and the replica."""

_OWN_TROUBLES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL))
"""They say nothing of the replica: files, memory or ports of this machine are all in use."""


class UpstreamPool:
    """Lives on one event loop."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._idle: deque[UpstreamConnection] = deque()
        """The one that was given back last is used first, so that those that are not needed grow old at the other end."""
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def take_idle(self) -> UpstreamConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def connect(self, timeout_seconds: float) -> UpstreamConnection:
        """Raises ConnectError and NoSocketError."""
        try:
            async with asyncio.timeout(timeout_seconds):
                _, connection = await self._loop.create_connection(lambda: UpstreamConnection(self._loop), self._address.host, self._address.port)
        except TimeoutError:
            raise ConnectError(f"no connection to {self._address} within {timeout_seconds:g} s") from None
        except OSError as error:
            kind = NoSocketError if error.errno in _OWN_TROUBLES else ConnectError
            raise kind(f"no connection to {self._address}: {error.strerror or error}") from error
        except UnicodeError as error:
            raise ConnectError(f"no connection to {self._address}: no name of a host: {error}") from error
        return connection

    def give_back(self, connection: UpstreamConnection) -> None:
        """One that no further request may use is closed."""
        now = self._loop.time()
        is_young = connection.num_requests < MAX_REQUESTS and now - connection.opened < MAX_AGE_SECONDS
        if self._is_closed or not is_young or not connection.is_reusable:
            connection.close()
            return
        connection.used = now
        self._idle.append(connection)
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(IDLE_SECONDS, self._sweep)

    def close(self) -> None:
        """Those that are in use end with their answers."""
        self._is_closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        while self._idle:
            self._idle.pop().close()

    def _sweep(self) -> None:
        self._sweep_timer = None
        oldest = self._loop.time() - IDLE_SECONDS
        while self._idle and (self._idle[0].used <= oldest or not self._idle[0].is_open):
            self._idle.popleft().close()
        if self._idle:
            self._sweep_timer = self._loop.call_at(self._idle[0].used + IDLE_SECONDS, self._sweep)
