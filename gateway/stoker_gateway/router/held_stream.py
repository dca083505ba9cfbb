"""A stream that waits for a replica: its answer begins with comments, so that nobody on the way takes it for dead."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from stoker_gateway.openai.errors import ApiError, ErrorObject
from stoker_gateway.router.exchange import EVENT_STREAM, Exchange

HEARTBEAT_SECONDS = 10.0
"""A refusal that comes earlier still has a status of its own."""

_HEADERS = ((b"content-type", EVENT_STREAM + b"; charset=utf-8"), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
_HEARTBEAT = b": waiting for a replica\n\n"


class _ErrorBody(msgspec.Struct):
    error: ErrorObject


@asynccontextmanager
async def heartbeats(exchange: Exchange) -> AsyncIterator[None]:
    """Sends them while its body runs."""
    beating = asyncio.create_task(_beat(exchange))
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.wait({beating})


async def _beat(exchange: Exchange) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        if not exchange.has_begun:
            await exchange.begin(200, _HEADERS)
        await exchange.write(_HEARTBEAT)


def error_of(status: int, body: bytes) -> ApiError:
    """A replica's refusal, for an answer whose head has been sent."""
    try:
        error = msgspec.json.decode(body, type=_ErrorBody).error
    except msgspec.DecodeError:
        return ApiError(f"The replica answered with the status {status}.", status=status, error_type="server_error", code="replica_failed")
    return ApiError(error.message, param=error.param, status=status, error_type=error.type, code=error.code)
