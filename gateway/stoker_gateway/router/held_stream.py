"""A stream that waits, for a replica or for its first token: its answer begins with comments, so that nobody on the way takes it for dead."""

import asyncio

import msgspec

from stoker_gateway.openai.errors import ApiError, ErrorBody
from stoker_gateway.openai.streaming import CONTENT_TYPE, HEADERS
from stoker_gateway.router.exchange import Exchange

STREAMING_PATHS = frozenset(("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"))
"""What answers `stream: true` with a stream of events; elsewhere it means nothing."""

HEARTBEAT_SECONDS = 10.0
"""A refusal that comes earlier still has a status of its own."""

_HEADERS = ((b"content-type", CONTENT_TYPE.encode()), *((name.lower().encode(), value.encode()) for name, value in HEADERS.items()))
_HEARTBEAT = b": waiting\n\n"


class Heartbeats:
    """Of a stream that waits, from the first HEARTBEAT_SECONDS on until `stop`."""

    __slots__ = ("_exchange", "_task", "_timer")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(HEARTBEAT_SECONDS, self._start)

    def stop(self) -> None:
        """At once: what is written then comes after the last of them."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        self._task = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        await self._exchange.begin(200, _HEADERS)
        while True:
            await self._exchange.write(_HEARTBEAT)
            await asyncio.sleep(HEARTBEAT_SECONDS)


def error_of(status: int, body: bytes) -> ApiError:
    """A replica's refusal, for an answer whose head has been sent."""
    try:
        error = msgspec.json.decode(body, type=ErrorBody).error
    except msgspec.DecodeError:
        return ApiError(f"The replica answered with the status {status}.", status=status, error_type="server_error", code="replica_failed")
    return ApiError(error.message, param=error.param, status=status, error_type=error.type, code=error.code)
