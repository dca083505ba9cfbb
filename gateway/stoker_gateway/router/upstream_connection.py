"""UpstreamConnection: one HTTP/1.1 connection to a replica, and its answers as they come."""

import asyncio
import socket
from collections.abc import Callable

from stoker_gateway.router.delivery import is_lost
from stoker_gateway.router.upstream_answer import ResponseHead, UpstreamAnswer
from stoker_gateway.router.upstream_errors import ConnectError, UpstreamBrokenError, UpstreamClosedError, UpstreamError, UpstreamSilentError

HIGH_WATER_BYTES = 256 * 1024
"""Of an answer that its client has not taken yet; past it nothing more is read from the replica."""

KEEPALIVE_OPTIONS = tuple(
    (socket.IPPROTO_TCP, getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000))
    if hasattr(socket, name)
)
"""A replica whose machine is gone says nothing, ever: the kernel notices within half a minute."""


Sink = Callable[[Callable[[], bytes]], bool]
"""Where an answer goes: it calls for the piece that has come, or has not taken it."""


class UpstreamConnection(asyncio.Protocol):
    """`send`, then `read_head`, then `read` until it returns nothing; again if `is_reusable` then. Whoever stops earlier closes it."""

    __slots__ = (
        "_answer",
        "_delivery_timer",
        "_error",
        "_is_paused",
        "_last_came",
        "_loop",
        "_silence_seconds",
        "_silence_timer",
        "_sink",
        "_transport",
        "_waiter",
        "is_open",
        "num_requests",
        "opened",
        "used",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._answer: UpstreamAnswer | None = None
        """To the last request."""
        self._error: UpstreamError | None = None
        self._is_paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._silence_timer: asyncio.TimerHandle | None = None
        self._sink: Sink | None = None
        self.is_open = False
        self.num_requests = 0
        """That were sent over it."""
        self.opened = self.used = loop.time()
        """When it was made, and last given back."""

    @property
    def has_begun(self) -> bool:
        """Whether a byte of the answer has come."""
        return self._answer is not None and self._answer.has_begun

    @property
    def is_complete(self) -> bool:
        """Whether all of the answer has come; `read` may have more of it."""
        return self._answer is not None and self._answer.is_complete

    @property
    def is_reusable(self) -> bool:
        """Whether another request may be sent over it. A replica may answer before it has read the last one."""
        answer = self._answer
        if not self.is_open or self._transport is None or self._transport.get_write_buffer_size():
            return False
        return answer is not None and answer.is_complete and answer.keeps_alive and not answer.num_waiting_bytes

    def send(self, head: bytes, body: bytes) -> None:
        """A whole request."""
        self._answer = UpstreamAnswer()
        self._error = None
        self._is_paused = False
        self._sink = None
        self.num_requests += 1
        if self._transport is None or not self.is_open:
            self._error = UpstreamClosedError("the connection had been closed")
            return
        self._transport.write(head)
        if body:
            self._transport.write(body)

    async def read_head(self, delivery_seconds: float) -> ResponseHead:
        """Of the final answer. Raises UpstreamError; ConnectError where the request has not arrived after `delivery_seconds`."""
        answer = self._sent()
        self._delivery_timer = self._loop.call_later(delivery_seconds, self._check_delivery, delivery_seconds)
        try:
            while answer.head is None:
                if self._error is not None:
                    raise self._error
                await self._wait()
        finally:
            self._delivery_timer.cancel()
        return answer.head

    async def read(self) -> bytes:
        """What has come since, waited for; nothing at the end. Raises UpstreamError where it ends early, when all that came was read."""
        answer = self._sent()
        while not answer.num_waiting_bytes:
            if answer.is_complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait()
        piece = answer.take()
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._last_came = self._loop.time()
            self._transport.resume_reading()
        return piece

    def pass_on(self, sink: Sink, seconds: float) -> None:
        """From now on a piece for which a `read` waits goes to `sink` as it comes, without a task's turn, where that takes it; the last one is for `read`.

        A silence of more than `seconds` is an UpstreamSilentError. The time in which nobody reads what has come does not count.
        """
        if not self.is_complete:
            self._sink = sink
            self._silence_seconds = seconds
            self._last_came = self._loop.time()
            self._silence_timer = self._loop.call_later(seconds, self._check_silence)

    def close(self) -> None:
        """At once, whatever is under way."""
        self.is_open = False
        self._end_passing_on()
        if self._transport is not None:
            self._transport.abort()

    def _sent(self) -> UpstreamAnswer:
        if self._answer is None:
            raise RuntimeError("nothing was sent that could have an answer")
        return self._answer

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

    def _end_passing_on(self) -> None:
        """An idle connection keeps nothing of the last request."""
        self._sink = None
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
        answer = self._answer
        if answer is None or answer.is_complete:
            self.close()  # nobody asked
            return
        try:
            answer.feed(data)
        except UpstreamBrokenError as error:
            self._fail(error)
            return
        if answer.is_complete:
            self._end_passing_on()
        if self._silence_timer is not None:
            self._last_came = self._loop.time()
        if not answer.is_complete and answer.num_waiting_bytes:
            if self._try_sink(answer):
                return
            if answer.num_waiting_bytes > HIGH_WATER_BYTES and not self._is_paused and self._transport is not None:
                self._is_paused = True
                self._transport.pause_reading()
        self._wake()

    def _try_sink(self, answer: UpstreamAnswer) -> bool:
        if self._sink is None or self._waiter is None or self._waiter.done():
            return False
        try:
            return self._sink(answer.take)
        except Exception as error:  # noqa: BLE001 - whoever reads raises it
            self._waiter.set_exception(error)
            return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._end_passing_on()
        if self._answer is not None:
            if exc is None:
                self._answer.end()
            self._answer.drop()
            if not self._answer.is_complete and self._error is None:
                self._error = UpstreamClosedError("the connection ended before the answer did")
        self._wake()
