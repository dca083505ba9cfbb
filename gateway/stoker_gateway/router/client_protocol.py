"""HTTP/1.1 with one client: the api's protocol, and what a server that passes requests on must not let through."""

import asyncio

from stoker_gateway.http.protocol import HttpProtocol
from stoker_gateway.router.delivery import num_unacknowledged

ABORT = "stoker.abort"
"""ASGI extension: ends the connection at once, so that its client sees that an answer was cut."""

STALL_SECONDS = 120.0
"""How long a client may take nothing of an answer."""

MAX_PIPELINED = 16
"""Requests that one connection may send before it has the answer to the first."""


class RefusedRequestError(Exception):
    """Ends the parser's work; never seen outside."""


class ClientProtocol(HttpProtocol):
    """Trailers are dropped: a server must not take them for headers."""

    _is_head = True
    _num_hosts = 0
    _stall_timer: asyncio.TimerHandle | None = None
    _num_untaken_bytes = 0

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_head = True
        self._num_hosts = 0
        self.scope["extensions"] = {ABORT: self.transport.abort}  # type: ignore[dict-item]

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_head:
            return
        if name.lower() == b"host":
            self._num_hosts += 1
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_head = False
        if not self._is_clear() or len(self.pipeline) >= MAX_PIPELINED:
            raise RefusedRequestError
        super().on_headers_complete()

    def _is_clear(self) -> bool:
        """HTTP/1.0 knows no chunks, and HTTP/1.1 one host."""
        if self.parser.get_http_version() == "1.0":
            return self._num_hosts <= 1 and all(name != b"transfer-encoding" for name, _ in self.headers)
        return self.parser.get_http_version() == "1.1" and self._num_hosts == 1

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_stall()

    def resume_writing(self) -> None:
        self._end_stall()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_stall()
        super().connection_lost(exc)

    def _watch_stall(self) -> None:
        self._num_untaken_bytes = self._untaken()
        self._stall_timer = self.loop.call_later(STALL_SECONDS, self._check_stall)

    def _check_stall(self) -> None:
        """A client that takes little of much that waits is slow, not gone."""
        if self._untaken() < self._num_untaken_bytes:
            self._watch_stall()
        else:
            self.transport.abort()

    def _untaken(self) -> int:
        """Bytes, here and in the kernel. Nothing is written meanwhile."""
        return self.transport.get_write_buffer_size() + num_unacknowledged(self.transport.get_extra_info("socket"))

    def _end_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
