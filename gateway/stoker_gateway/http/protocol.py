"""HTTP/1.1 on one connection: uvicorn's protocol, with a limit to what comes before a body, and errors in the API's words."""

import asyncio
from typing import Any, cast

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from stoker_gateway.http.disconnect import CLIENT, ClientLink
from stoker_gateway.http.request_parser import RequestParser
from stoker_gateway.http.unframed import unframed
from stoker_gateway.openai.errors import ApiError, headers_too_large, malformed_request

MAX_HEADER_BYTES = 64 * 1024
"""Of a request's line and headers together."""

MAX_HEADERS = 256

MAX_PARSED_BYTES = 16 * 1024
"""At once: what comes in one piece with the end of a head goes uncounted."""

HEAD_SECONDS = 75.0
"""How long a connection may take for the head of its first request, or for the rest of one that has begun: as long as an idle one is kept."""


DISCARD_SECONDS = 10.0
"""How long the rest of a request may take that was answered before all of it had come."""


BODY_IS_HERE = "stoker.body_is_here"
"""In a request's scope from when all of its body has come: how long the rest takes need not be watched."""

MAX_READ_AHEAD = 8
"""Requests that may wait on one connection before no more is read from it: where nothing is read, nobody sees that the client has left."""


class HeaderLimitError(Exception):
    """Ends the parser's work; never seen outside."""


class HttpProtocol(HttpToolsProtocol):
    """The parser itself would take in headers without end, and uvicorn would wait for them as long."""

    _num_unfinished_bytes = 0
    _is_too_large = False
    _head_timer: asyncio.TimerHandle | None = None
    _is_in_body = False
    """Whether the head of a request has come, and not yet its end."""
    _discard_timer: asyncio.TimerHandle | None = None
    _refusal = b""
    """The answer to what could not be read; nothing is read after that."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._requests = RequestParser(self)
        self.parser = self._requests  # type: ignore[assignment]
        self._unanswered: list[RequestResponseCycle] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self._end_discarding()
        super().connection_lost(exc)
        for cycle in self._unanswered:  # uvicorn tells the last one alone
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
                _extensions(cycle)[CLIENT].leave()
        # What refers to this connection, and it to them, would wait for the garbage collector: it stops everybody for 0.1 s where many connections come and go.
        for cycle in (self.cycle, *self._unanswered):
            if cycle is not None:
                cycle.on_response = _nothing
        self._requests.close()

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), MAX_PARSED_BYTES):
            if not self.transport.is_closing() and not self._refusal:
                self._parse(data[start : start + MAX_PARSED_BYTES])

    def _parse(self, data: bytes) -> None:
        self._num_unfinished_bytes += len(data)
        super().data_received(data)
        if self._num_unfinished_bytes and self._head_timer is None:
            self._await_head()
        # Of what was received, nothing is counted that ended a head or belongs to a body: they set the count back.
        if self._num_unfinished_bytes > MAX_HEADER_BYTES and not self.transport.is_closing() and not self._refusal:
            self._is_too_large = True
            self.send_400_response("")

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            self._is_too_large = True
            raise HeaderLimitError

    def on_headers_complete(self) -> None:
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEADER_BYTES:
            self._is_too_large = True
            raise HeaderLimitError
        self._head_came()
        super().on_headers_complete()
        self._is_in_body = True
        self._unanswered = [cycle for cycle in self._unanswered if not cycle.response_complete]
        self._unanswered.append(self.cycle)
        _extensions(self.cycle)[CLIENT] = ClientLink(self.flow)
        if 0 < len(self.pipeline) < MAX_READ_AHEAD:
            self.flow.resume_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.scope["http_version"] == "1.0":
            app = unframed(app, cycle)
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._head_came()
        if not _extensions(self.cycle)[CLIENT].is_watched:  # else nobody reads a body any more, and one that is kept would stop all reading
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._requests.is_upgrading:
            return
        self._head_came()
        self._is_in_body = False
        _extensions(self.cycle)[BODY_IS_HERE] = True
        self._end_discarding()
        super().on_message_complete()
        if self.cycle.response_complete:
            self._await_head()  # uvicorn waits without end for what follows a body that came after its answer

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_in_body and self.cycle.response_complete and not self.transport.is_closing():
            self._discard_timer = self.loop.call_later(DISCARD_SECONDS, self.transport.close)
        if self._refusal:
            self._refuse_in_turn()

    def _end_discarding(self) -> None:
        if self._discard_timer is not None:
            self._discard_timer.cancel()
            self._discard_timer = None

    def _await_head(self) -> None:
        if not self.transport.is_closing():
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up_head)

    def _head_came(self) -> None:
        self._num_unfinished_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up_head(self) -> None:
        """An answer that is still being sent to the request before is not cut."""
        self._head_timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """The request is answered as if it asked for no other protocol, which is no news for the log."""

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls where it cannot read a request. `msg` is uvicorn's own, and not for clients."""
        error = headers_too_large(MAX_HEADER_BYTES, MAX_HEADERS) if self._is_too_large else malformed_request()
        self._refusal = _response(error)
        if not self._is_in_body:
            self._refuse_in_turn()
        elif self.pipeline:
            self.pipeline.popleft()  # the request itself, which nobody has begun with
            self._unanswered.pop()
        elif self.cycle.response_complete:
            self.transport.close()
        elif self.cycle.response_started:
            self.transport.abort()  # what is written now would be part of the answer
        else:
            self._refuse()

    def _refuse_in_turn(self) -> None:
        """When the requests before have their answers."""
        if all(cycle.response_complete for cycle in self._unanswered):
            self._refuse()

    def _refuse(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(self._refusal)
            self.transport.close()


def _extensions(cycle: RequestResponseCycle) -> dict[str, Any]:
    """The scope, for what ASGI does not know."""
    return cast("dict[str, Any]", cycle.scope)


def _nothing() -> None:
    """Nobody waits for the end of an answer whose connection is gone."""


def _response(error: ApiError) -> bytes:
    body = error.body()
    reason = {400: "Bad Request", 431: "Request Header Fields Too Large"}[error.status]
    head = f"HTTP/1.1 {error.status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
