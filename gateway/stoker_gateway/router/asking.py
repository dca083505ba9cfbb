"""One replica is asked: over an idle connection where there is a good one, else over a new one."""

import asyncio
from dataclasses import dataclass

import msgspec

from stoker_gateway.router.body_memory import HeldBody
from stoker_gateway.router.traffic import TimeoutConfig
from stoker_gateway.router.upstream_answer import ResponseHead
from stoker_gateway.router.upstream_connection import UpstreamConnection
from stoker_gateway.router.upstream_errors import ConnectError, NoSocketError, UpstreamClosedError, UpstreamError
from stoker_gateway.router.upstream_pool import UpstreamPool

STALE_SECONDS = 0.25
"""The other end may close an idle connection just when a request is sent over it: that shows within a round trip. One that is closed later had the request."""

MAX_REFUSAL_BYTES = 16 * 1024
REFUSAL_SECONDS = 5.0

ELSEWHERE = 400
"""The status of a replica that has not the response that a request goes on from: another one may have it."""

_REFUSALS = {
    ELSEWHERE: {"previous_response_not_found"},
    404: {"model_not_found", "response_not_found"},
    429: {"queue_full"},
    503: {"draining", "engine_not_ready"},
}
"""By status, the codes with which the api says that it has begun nothing. While a model gets another name, some replicas don't know it yet."""


class _Error(msgspec.Struct):
    code: str | None = None


class _ErrorBody(msgspec.Struct):
    error: _Error


@dataclass(slots=True, frozen=True)
class Message:
    """A request as every replica would get it."""

    head: bytes
    body: HeldBody
    timeouts: TimeoutConfig


@dataclass(slots=True, frozen=True)
class Refusal:
    """The answer of a replica that has not taken the request on: another one may have it."""

    head: ResponseHead
    body: bytes


async def ask(pool: UpstreamPool, head: bytes, body: bytes, connect_seconds: float) -> tuple[UpstreamConnection, ResponseHead]:
    """Raises UpstreamError; ConnectError where the request does not arrive, for want of a connection or over one to a machine that is gone.

    A request that went out once may have been begun: it goes to this replica or to none.
    """
    ended: UpstreamClosedError | None = None
    while (connection := pool.take_idle()) is not None:
        sent = asyncio.get_running_loop().time()
        try:
            return connection, await _ask(connection, head, body, connect_seconds)
        except UpstreamClosedError as error:
            if connection.has_begun or asyncio.get_running_loop().time() - sent > STALE_SECONDS:
                raise
            ended = error
    try:
        connection = await pool.connect(connect_seconds)
        return connection, await _ask(connection, head, body, connect_seconds)
    except (ConnectError, NoSocketError) as error:
        raise error if ended is None else ended from None


async def _ask(connection: UpstreamConnection, head: bytes, body: bytes, delivery_seconds: float) -> ResponseHead:
    try:
        connection.send(head, body)
        return await connection.read_head(delivery_seconds)
    except BaseException:
        connection.close()
        raise


def may_be_refusal(head: ResponseHead) -> bool:
    """Whether `read_refusal` is worth a try: the answer is short."""
    length = head.get(b"content-length") or b""
    is_meant = head.status in (ELSEWHERE, 404) or (head.status in _REFUSALS and head.get(b"retry-after") is not None)
    return is_meant and length.isdigit() and int(length[:20]) <= MAX_REFUSAL_BYTES


async def read_refusal(connection: UpstreamConnection, head: ResponseHead) -> tuple[Refusal, bool]:
    """The whole answer, and whether it says that nothing was begun. Raises UpstreamError."""
    pieces: list[bytes] = []
    try:
        async with asyncio.timeout(REFUSAL_SECONDS):
            while piece := await connection.read():
                pieces.append(piece)
    except TimeoutError:
        raise UpstreamError("its answer did not end") from None
    body = b"".join(pieces)
    return Refusal(head, body), _code(body) in _REFUSALS[head.status]


def _code(body: bytes) -> str | None:
    try:
        return msgspec.json.decode(body, type=_ErrorBody).error.code
    except msgspec.DecodeError:
        return None
