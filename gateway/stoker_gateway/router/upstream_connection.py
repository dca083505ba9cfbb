"""UpstreamConnection: one HTTP/1.1 connection to a replica, and its answers as they come."""

import asyncio
import socket
from dataclasses import dataclass

import httptools

from stoker_gateway.router.delivery import is_lost

Header = tuple[bytes, bytes]

HIGH_WATER_BYTES = 256 * 1024
"""Of an answer that its client has not taken yet; past it nothing more is read from the replica."""

MAX_HEAD_BYTES = 64 * 1024
"""Of an answer's status line and headers together."""

KEEPALIVE_OPTIONS = tuple(
    (socket.IPPROTO_TCP, getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000))
    if hasattr(socket, name)
)
"""A replica whose machine is gone says nothing, ever: the kernel notices within half a minute."""


class UpstreamError(Exception):
    """A replica did not answer, or not to the end.

    UpstreamError
    ├── ConnectError          there is no connection, or the request does not arrive over it
    ├── UpstreamClosedError   the connection ended before the answer did
    ├── UpstreamSilentError   nothing came for too long
    └── UpstreamBrokenError   what came is no HTTP
    """


class ConnectError(UpstreamError): ...


class UpstreamClosedError(UpstreamError): ...


class UpstreamSilentError(UpstreamError): ...


class UpstreamBrokenError(UpstreamError): ...


@dataclass(slots=True, frozen=True)
class ResponseHead:
    """The names are lower case."""

    status: int
    headers: list[Header]

    def get(self, name: bytes) -> bytes | None:
        return next((value for header, value in self.headers if header == name), None)


class UpstreamConnection(asyncio.Protocol):
    """`send`, then `read_head`, then `read` until it returns nothing; again if `is_reusable` then. Whoever stops earlier closes it."""

    __slots__ = (
        "_delivery_timer",
        "_error",
        "_has_length",
        "_head",
        "_head_bytes",
        "_headers",
        "_is_busy",
        "_is_interim",
        "_is_paused",
        "_keeps_alive",
        "_last_came",
        "_loop",
        "_num_waiting_bytes",
        "_parser",
        "_parts",
        "_silence_seconds",
        "_silence_timer",
        "_transport",
        "_waiter",
        "has_begun",
        "is_complete",
        "is_open",
        "num_requests",
        "opened",
        "used",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._silence_timer: asyncio.TimerHandle | None = None
        self.is_open = False
        self.num_requests = 0
        """That were sent over it."""
        self.opened = self.used = loop.time()
        """When it was made, and last given back."""
        self._is_busy = False
        self._expect_answer()
        self._is_busy = False

    def _expect_answer(self) -> None:
        self._is_busy = True
        self._error: UpstreamError | None = None
        self._head: ResponseHead | None = None
        self._headers: list[Header] = []
        self._head_bytes = 0
        self._has_length = False
        self._is_interim = False
        self._keeps_alive = False
        self._parts: list[bytes] = []
        self._num_waiting_bytes = 0
        self._is_paused = False
        self.has_begun = False
        """Whether a byte of the answer has come."""
        self.is_complete = False
        """Whether all of the answer has come; `read` may have more of it."""

    @property
    def is_reusable(self) -> bool:
        """Whether another request may be sent over it."""
        return self.is_open and self._keeps_alive and self.is_complete and not self._parts

    def send(self, head: bytes, body: bytes) -> None:
        """A whole request."""
        self._expect_answer()
        self.num_requests += 1
        if self._transport is None or not self.is_open:
            self._error = UpstreamClosedError("the connection had been closed")
            return
        self._transport.write(head)
        if body:
            self._transport.write(body)

    async def read_head(self, delivery_seconds: float) -> ResponseHead:
        """Of the final answer. Raises UpstreamError; ConnectError where the request has not arrived after `delivery_seconds`."""
        self._delivery_timer = self._loop.call_later(delivery_seconds, self._check_delivery, delivery_seconds)
        try:
            while self._head is None:
                if self._error is not None:
                    raise self._error
                await self._wait()
        finally:
            self._delivery_timer.cancel()
        return self._head

    async def read(self) -> bytes:
        """What has come since, waited for; nothing at the end. Raises UpstreamError where it ends early, when all that came was read."""
        while not self._parts:
            if self.is_complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait()
        piece = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        self._num_waiting_bytes = 0
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._last_came = self._loop.time()
            self._transport.resume_reading()
        return piece

    def limit_silence(self, seconds: float) -> None:
        """From now on a longer silence is an UpstreamSilentError. The time in which nobody reads what has come does not count."""
        if not self.is_complete:
            self._silence_seconds = seconds
            self._last_came = self._loop.time()
            self._silence_timer = self._loop.call_later(seconds, self._check_silence)

    def close(self) -> None:
        """At once, whatever is under way."""
        self.is_open = False
        self._stop_timer()
        if self._transport is not None:
            self._transport.abort()

    def _check_delivery(self, seconds: float) -> None:
        connection: socket.socket | None = None if self._transport is None else self._transport.get_extra_info("socket")
        if self.has_begun or connection is None:
            return
        if is_lost(connection):
            self._fail(ConnectError(f"no word that the request arrives within {seconds:g} s"))
        else:
            self._delivery_timer = self._loop.call_later(seconds, self._check_delivery, seconds)

    def _check_silence(self) -> None:
        rest = self._silence_seconds if self._is_paused else self._last_came + self._silence_seconds - self._loop.time()
        if rest > 0:
            self._silence_timer = self._loop.call_later(rest, self._check_silence)
        else:
            self._fail(UpstreamSilentError(f"nothing came for {self._silence_seconds:g} s"))

    def _stop_timer(self) -> None:
        if self._silence_timer is not None:
            self._silence_timer.cancel()
            self._silence_timer = None

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: UpstreamError) -> None:
        if not self.is_complete and self._error is None:
            self._error = error
        self.close()
        self._wake()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self.is_open = True
        connection: socket.socket | None = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for level, option, value in KEEPALIVE_OPTIONS:
                connection.setsockopt(level, option, value)

    def data_received(self, data: bytes) -> None:
        if not self._is_busy or self.is_complete or self._parser is None:
            self._keeps_alive = False
            self.close()  # nobody asked
            return
        self.has_begun = True
        if self._head is None:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(UpstreamBrokenError(f"its answer is no HTTP: {error}"))
            return
        if self._head is None and self._head_bytes > MAX_HEAD_BYTES:
            self._fail(UpstreamBrokenError(f"the head of its answer is longer than {MAX_HEAD_BYTES} bytes"))
        elif self._silence_timer is not None:
            self._last_came = self._loop.time()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._stop_timer()
        if self._is_busy and not self.is_complete and self._error is None:
            if self._head is not None and not self._has_length and exc is None:
                self.is_complete = True  # an answer without a length ends with its connection
            else:
                self._error = UpstreamClosedError("the connection ended before the answer did")
        self._parser = None  # which holds this object
        self._wake()

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self.is_complete:
            self._keeps_alive = False  # an answer that nobody asked for

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is not None:
            return  # a trailer
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._has_length = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._head is not None or self._parser is None:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._is_interim = True
            self._headers = []
            self._has_length = False
            return
        self._has_length = self._has_length or status in (204, 304)
        self._keeps_alive = self._parser.should_keep_alive()
        self._head = ResponseHead(status, self._headers)

    def on_body(self, body: bytes) -> None:
        if self.is_complete:
            return
        self._parts.append(body)
        self._num_waiting_bytes += len(body)
        if self._num_waiting_bytes > HIGH_WATER_BYTES and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._is_interim:
            self._is_interim = False
            return
        self.is_complete = True
        self._stop_timer()
