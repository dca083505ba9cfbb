"""Exchange: one request of a client and the answer that it gets, in ASGI's messages."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from time import monotonic, perf_counter
from typing import cast

from starlette.types import Receive, Scope, Send

from stoker_gateway.anthropic.errors import messages_error
from stoker_gateway.http.disconnect import CLIENT, ClientLink
from stoker_gateway.http.json_response import is_messages
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.streaming import error_event, named_event
from stoker_gateway.router.admission.answer_tokens import AnswerTokens
from stoker_gateway.router.admission.caller import ANYONE, Caller
from stoker_gateway.router.client_protocol import ABORT
from stoker_gateway.router.errors import BODIES_FILL_MEMORY
from stoker_gateway.router.lifecycle import Lifecycle
from stoker_gateway.router.response_error import response_error_event
from stoker_gateway.router.routed_request import RoutedRequest, request_id
from stoker_gateway.router.upstream_answer import Header

JSON: Header = (b"content-type", b"application/json")
CLOSE: Header = (b"connection", b"close")
EVENT_STREAM = b"text/event-stream"

_BODY_REFUSED = frozenset((408, 413))
FREE = frozenset(("/v1/messages/count_tokens", "/tokenize", "/detokenize"))
"""They count tokens, and cost none."""

LINGER_SECONDS = 2.0
LINGER_BYTES = 4 * 1024 * 1024
"""Of a request that was refused before all of it had come, what is read and thrown away."""


class Exchange:
    """`headers` are the request's; the names are lower case."""

    __slots__ = (
        "_end_waiting",
        "_is_event_stream",
        "_last_piece",
        "_lifecycle",
        "_send",
        "asked_bytes",
        "caller",
        "has_begun",
        "headers",
        "receive",
        "record",
        "scope",
        "tokens",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self.scope = scope
        self.receive = receive
        self._send = send
        # A copy: the server adds trailers to its own list.
        self.headers: Sequence[Header] = tuple(scope["headers"])
        self.record = RoutedRequest(request_id(self.headers), scope["method"], scope["raw_path"].decode("latin-1"))
        self.has_begun = False
        """Whether the answer's head was sent."""
        self._end_waiting: Callable[[], None] = _nothing
        self.caller = ANYONE
        self.asked_bytes = 0
        """How long the request is that a replica has taken on, or may have."""
        self.tokens: AnswerTokens | None = None
        """Counts what the answer costs, where anyone wants to know."""
        self._is_event_stream = False
        self._last_piece = b""

    def at_end_of_waiting(self, call: Callable[[], None]) -> None:
        self._end_waiting = call

    def end_waiting(self) -> None:
        """Before an answer is sent on: nothing else is sent from then on."""
        end, self._end_waiting = self._end_waiting, _nothing
        end()

    @property
    def client(self) -> str | None:
        client = self.scope["client"]
        return None if client is None else client[0]

    @property
    def target(self) -> bytes:
        """The path and query, as they came."""
        path: bytes = self.scope["raw_path"]
        query: bytes = self.scope["query_string"]
        return path + b"?" + query if query else path

    def header(self, name: bytes) -> bytes | None:
        return next((value for header, value in self.headers if header == name), None)

    def identify(self, caller: Caller) -> None:
        """Says who asks."""
        self.caller = caller
        self.record.key_name = caller.name
        if caller.counts_tokens:
            self.tokens = AnswerTokens()

    def charge(self) -> None:
        """What the answer has cost, to who asked: nothing where nothing was generated, or it was refused."""
        if self.tokens is not None and self.asked_bytes and self.record.status < 400 and self.scope["path"] not in FREE:
            self.record.num_tokens = self.tokens.total(self.asked_bytes)
            self.caller.charge(self.record.num_tokens, monotonic())

    def note_first_byte(self) -> None:
        self.record.first_byte_seconds = perf_counter() - self.record.started

    async def begin(self, status: int, headers: Sequence[Header]) -> None:
        record = self.record
        record.status = status
        self.note_first_byte()
        own_id = record.request_id.encode("latin-1")
        sent = [*headers, (b"x-request-id", own_id)]
        if is_messages(self.scope):
            sent = [header for header in sent if header[0] != b"request-id"]
            sent.append((b"request-id", own_id))
        if self._lifecycle.is_leaving:
            sent.append(CLOSE)
        self._is_event_stream = any(name == b"content-type" and value.startswith(EVENT_STREAM) for name, value in headers)
        try:
            await self._send({"type": "http.response.start", "status": status, "headers": sent})
        except RuntimeError:  # a header that is none: the server takes no other head then
            self.has_begun = True
            raise
        self.has_begun = True  # not before: who is cancelled while the client reads slowly has sent nothing

    async def write(self, body: bytes) -> None:
        """A piece that others follow. Returns when the client takes it; raises nothing where the client is gone."""
        self._count(body)
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    def try_write(self, take: Callable[[], bytes]) -> bool:
        """As `write`, where that has nothing to wait for: else nothing is taken."""
        client: ClientLink = self.scope[CLIENT]
        if not client.takes_more:
            return False
        piece = take()
        self._count(piece)
        sending = cast("Coroutine[None, None, None]", self._send({"type": "http.response.body", "body": piece, "more_body": True}))
        if not _runs_through(sending):
            raise RuntimeError("the client takes no more")
        return True

    async def end(self, body: bytes = b"") -> None:
        """The last piece."""
        self._count(body)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    def _count(self, body: bytes) -> None:
        self.record.num_bytes += len(body)
        if self.tokens is not None:
            self.tokens.add(body)
        self._last_piece = body

    async def answer(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        await self.begin(status, [*headers, (b"content-length", b"%d" % len(body))])
        await self.end(body)

    async def answer_json(self, body: bytes, status: int = 200) -> None:
        await self.answer(status, (JSON,), body)

    async def fail(self, error: ApiError) -> None:
        """Instead of an answer, or as the end of one that has begun: an event where it is a stream of events, else an end that shows that it was cut."""
        self.record.error = error.code or error.error_type
        if not self.has_begun:
            await self._refuse(error)
        elif self._is_event_stream:
            await self.end(self._last_event(error))
        else:
            self.scope["extensions"][ABORT]()
            while (await self.receive())["type"] != "http.disconnect":
                continue

    async def _refuse(self, error: ApiError) -> None:
        """In the shape of the API that was asked."""
        headers = [JSON, *((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in error.headers.items())]
        body = _error_body(error, self.scope, self.record.request_id)
        if error.status not in _BODY_REFUSED and error.code != BODIES_FILL_MEMORY:
            await self.answer(error.status, headers, body)
            return
        # A connection that is closed while bytes of its request come in is reset: its client might never read the answer.
        await self.begin(error.status, [*headers, (b"content-length", b"%d" % len(body))])
        await self.write(body)
        await self._discard_request()
        await self.end()

    async def _discard_request(self) -> None:
        num_bytes = 0
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                while num_bytes < LINGER_BYTES:
                    message = await self.receive()
                    num_bytes += len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return
        except TimeoutError:
            return

    def _last_event(self, error: ApiError) -> bytes:
        """In the shape of the API that was asked. An event that was cut is ended first."""
        before = b"" if self._last_piece.endswith(b"\n\n") else b"\n\n"
        path: str = self.scope["path"]
        if path.startswith("/v1/responses"):
            return before + response_error_event(error, self._last_piece)
        if is_messages(self.scope):
            return before + named_event("error", _error_body(error, self.scope, self.record.request_id))
        return before + error_event(error)


def _error_body(error: ApiError, scope: Scope, request_id: str) -> bytes:
    return messages_error(error, request_id) if is_messages(scope) else error.body()


def _runs_through(work: Coroutine[None, None, None]) -> bool:
    """Whether it has ended without waiting for anything."""
    try:
        work.send(None)
    except StopIteration:
        return True
    work.close()
    return False


def _nothing() -> None: ...
