"""Proxy: a request's way to a replica and its answer's way back, byte for byte."""

import asyncio
import functools
import logging

from stoker_engine.config import seconds
from stoker_gateway.http.disconnect import cancelled_by_disconnect
from stoker_gateway.http.drain import Drain
from stoker_gateway.openai.errors import model_not_found, timed_out
from stoker_gateway.router.admission.admission import Admission
from stoker_gateway.router.asking import ELSEWHERE, MAX_REFUSAL_BYTES, Message, Refusal, ask, may_be_refusal, read_refusal
from stoker_gateway.router.body_memory import BodyMemory, HeldBody
from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.errors import (
    keeper_unreachable,
    name_is_new,
    no_connection_left,
    no_replicas,
    not_synced,
    replica_failed,
    replica_silent,
    replicas_unreachable,
    stopping,
)
from stoker_gateway.router.exchange import EVENT_STREAM, Exchange
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.forwarded_headers import request_head, returned_headers
from stoker_gateway.router.held_stream import STREAMING_PATHS, Heartbeats, error_of
from stoker_gateway.router.kept_responses import PREFIX, KeptResponses
from stoker_gateway.router.model_field import with_model
from stoker_gateway.router.policy import RoutingKey
from stoker_gateway.router.request_body import RequestBody, parse_body, read_body
from stoker_gateway.router.served_model import ServedModel
from stoker_gateway.router.upstream_answer import ResponseHead
from stoker_gateway.router.upstream_connection import UpstreamConnection
from stoker_gateway.router.upstream_errors import ConnectError, NoSocketError, UpstreamError, UpstreamSilentError
from stoker_gateway.router.upstream_pools import UpstreamPools

logger = logging.getLogger(__name__)

_BROKEN = frozenset((502, 503))
"""With these a replica, or what stands before it, says that it is what is broken, not the request."""

_BODILESS = frozenset((204, 304))
"""A length that they name is that of another answer."""

_seconds = functools.lru_cache(maxsize=256)(seconds)


class Proxy:
    """Sends each request to a replica of its model, and to another one where that takes nothing on."""

    def __init__(self, fleet: Fleet, pools: UpstreamPools, drain: Drain, admission: Admission, bodies: BodyMemory) -> None:
        self._fleet = fleet
        self._pools = pools
        self._drain = drain
        self._admission = admission
        self._bodies = bodies
        self._kept_responses = KeptResponses(fleet, self._ask)
        self._tasks: set[asyncio.Task[object]] = set()
        self._is_aborting = False

    async def abort_all(self) -> None:
        """Ends what is in flight, each with an error."""
        self._is_aborting = True
        for task in self._tasks:
            task.cancel()

    async def handle(self, exchange: Exchange) -> None:
        """Raises ApiError, also when the answer has begun, and ClientDisconnectedError."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request needs a task")
        self._tasks.add(task)
        body = HeldBody(self._bodies)
        try:
            await read_body(exchange, body, self._bodies.max_body_bytes, self._drain)
            if exchange.scope["path"].startswith(PREFIX):
                with cancelled_by_disconnect(exchange.scope):
                    await self._kept_responses.handle(exchange, body)
            else:
                await self._handle_by_model(exchange, parse_body(body))
        except asyncio.CancelledError:
            if not self._is_aborting or task.uncancel():
                raise
            raise stopping() from None
        finally:
            body.drop()
            self._tasks.discard(task)

    async def _handle_by_model(self, exchange: Exchange, body: RequestBody) -> None:
        model = self._find(body.model)
        exchange.record.model = model.names[0]
        if body.model not in model.view.served_names:
            body.held.raw = with_model(body.held.raw, model.view.served_names[0])
        with cancelled_by_disconnect(exchange.scope):
            await self._forward_in_time(exchange, model, body)

    def _find(self, name: str) -> ServedModel:
        model = self._fleet.find(name)
        if model is None:
            raise model_not_found(name) if self._fleet.is_synced else not_synced()
        return model

    async def _forward_in_time(self, exchange: Exchange, model: ServedModel, body: RequestBody) -> None:
        limit = model.view.traffic.timeouts.request
        if limit is None:
            await self._forward_in_turn(exchange, model, body)
            return
        try:
            async with asyncio.timeout(_seconds(limit)):
                await self._forward_in_turn(exchange, model, body)
        except TimeoutError:
            raise timed_out(f"The request took longer than {limit}.") from None

    async def _forward_in_turn(self, exchange: Exchange, model: ServedModel, body: RequestBody) -> None:
        queue = self._admission.queue(model)
        if body.is_stream and exchange.scope["path"] in STREAMING_PATHS:
            exchange.at_end_of_waiting(Heartbeats(exchange).stop)
        try:
            if not queue.try_enter(exchange.caller):
                await queue.wait(exchange.caller)
            try:
                await self._forward(exchange, model, body)
            finally:
                queue.leave(exchange.caller)
        finally:
            exchange.end_waiting()

    async def _forward(self, exchange: Exchange, model: ServedModel, body: RequestBody) -> None:
        """Tries one replica after the other until one takes the request on."""
        traffic = model.view.traffic
        head = request_head(exchange.target, exchange.headers, exchange.client, request_id=exchange.record.request_id, content_length=len(body.held.raw))
        message = Message(head, body.held, traffic.timeouts)
        session = _session(exchange, traffic.session_header)
        tried: list[Endpoint] = []
        refusal: Refusal | None = None
        elsewhere: list[Endpoint] = []
        while len(tried) - len(elsewhere) <= traffic.retry.attempts and (endpoint := _choose(model, body, session, tried)) is not None:
            tried.append(endpoint)
            exchange.asked_bytes = len(body.held.raw)
            try:
                refusal = await self._ask(exchange, endpoint, message)
            except ConnectError:
                exchange.asked_bytes = 0
                continue
            if refusal is None:
                return
            exchange.asked_bytes = 0
            if refusal.head.status == ELSEWHERE:
                elsewhere.append(endpoint)
        if elsewhere and any(endpoint not in elsewhere for endpoint in model.endpoints):
            raise keeper_unreachable("that the request goes on from")
        if refusal is not None and refusal.head.status == 404:
            raise name_is_new(model.names[0])
        if refusal is not None:
            await _answer(exchange, refusal.head, refusal.body)
            return
        raise replicas_unreachable(model.names[0]) if tried else no_replicas(model.names[0])

    async def _ask(self, exchange: Exchange, endpoint: Endpoint, message: Message) -> Refusal | None:
        """As `_send`, in the record and for the fleet."""
        exchange.record.attempts += 1
        exchange.record.endpoint = str(endpoint.address)
        endpoint.num_in_flight += 1
        try:
            return await self._send(exchange, endpoint, message)
        except ConnectError as error:
            if endpoint.is_ready:
                self._fleet.unreachable(endpoint, str(error), _now())
            logger.warning("%s: %s", exchange.record.request_id, error)
            raise
        finally:
            endpoint.num_in_flight -= 1

    async def _send(self, exchange: Exchange, endpoint: Endpoint, message: Message) -> Refusal | None:
        """Relays the whole answer; or a refusal, of which the client has got nothing. Raises ConnectError where nothing arrived there."""
        pool = self._pools.of(endpoint)
        try:
            connection, head = await ask(pool, message.head, message.body.raw, _seconds(message.timeouts.connect))
            try:
                self._judge(endpoint, head)
                if may_be_refusal(head):
                    refusal, has_begun_nothing = await read_refusal(connection, head)
                    if has_begun_nothing:
                        return refusal
                    await _answer(exchange, head, refusal.body)
                else:
                    message.body.drop()
                    await _relay(exchange, connection, head, _seconds(message.timeouts.stream_idle))
            finally:
                pool.give_back(connection)
        except ConnectError:
            raise
        except NoSocketError as error:
            logger.error("%s: %s", exchange.record.request_id, error)
            raise no_connection_left() from None
        except UpstreamError as error:
            self._fleet.failed(endpoint, str(error), _now())
            logger.warning("%s: %s failed: %s", exchange.record.request_id, endpoint.address, error)
            if isinstance(error, UpstreamSilentError):
                raise replica_silent(_seconds(message.timeouts.stream_idle)) from None
            raise replica_failed(str(error)) from None
        return None

    def _judge(self, endpoint: Endpoint, head: ResponseHead) -> None:
        if head.status in _BROKEN:
            self._fleet.failed(endpoint, f"it answered with {head.status}", _now())
        else:
            endpoint.health.succeeded()


async def _relay(exchange: Exchange, connection: UpstreamConnection, head: ResponseHead, silence_seconds: float) -> None:
    """Each piece as it comes. Raises UpstreamError where the answer ends early."""
    exchange.end_waiting()
    if exchange.has_begun:
        await _check_held(exchange, connection, head)
    else:
        await exchange.begin(head.status, _without_length(head) if head.status in _BODILESS else returned_headers(head.headers))
    connection.pass_on(exchange.try_write, silence_seconds)
    while True:
        piece = await connection.read()
        if connection.is_complete:
            break
        await exchange.write(piece)
    await exchange.end(piece)


async def _answer(exchange: Exchange, head: ResponseHead, body: bytes) -> None:
    exchange.end_waiting()
    if exchange.has_begun:
        raise error_of(head.status, body)
    await exchange.answer(head.status, _without_length(head), body)


async def _check_held(exchange: Exchange, connection: UpstreamConnection, head: ResponseHead) -> None:
    """Raises ApiError where what the replica answers cannot go on a stream that has begun."""
    if head.status == 200 and (head.get(b"content-type") or b"").startswith(EVENT_STREAM):
        exchange.note_first_byte()
        return
    body = b""
    while len(body) < MAX_REFUSAL_BYTES and (piece := await connection.read()):
        body += piece
    raise error_of(head.status, body)


def _choose(model: ServedModel, body: RequestBody, session: str, tried: list[Endpoint]) -> Endpoint | None:
    return model.choose(RoutingKey(body.held.prompt, session), tried, _now())


def _session(exchange: Exchange, header: str | None) -> str:
    return "" if header is None else (exchange.header(header.lower().encode()) or b"").decode("latin-1")


def _without_length(head: ResponseHead) -> list[tuple[bytes, bytes]]:
    return [header for header in returned_headers(head.headers) if header[0] != b"content-length"]


def _now() -> float:
    return asyncio.get_running_loop().time()
