"""The response of a streamed request: events are sent as they come, and a failure on the way becomes an error event."""

import asyncio
import logging
from collections.abc import AsyncGenerator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stoker_engine.errors import EngineError
from stoker_gateway.api.engine_errors import to_api_error
from stoker_gateway.http.disconnect import ClientDisconnectedError, cancelled_by_disconnect
from stoker_gateway.openai import streaming

logger = logging.getLogger(__name__)


_HEADERS = tuple((name.lower().encode(), value.encode()) for name, value in {**streaming.HEADERS, "Content-Type": streaming.CONTENT_TYPE}.items())
"""Encoded once: a first token waits for what is done before it."""


class EventStream(Response):
    """Nothing is sent before the first event: what is wrong with the request still decides the status. `end` comes exactly once."""

    def __init__(self, request_id: str, events: AsyncGenerator[bytes], end: streaming.StreamEnd = streaming.COMPLETIONS_END) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers = [*_HEADERS]
        self._request_id = request_id
        self._events = events
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises what `events` raises before the first of them, and ClientDisconnectedError for a client that has left by then."""
        is_begun = False
        try:
            with cancelled_by_disconnect(scope):
                first = await anext(self._events)
                is_begun = True
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": first, "more_body": True})
                # In a task of its own: each event would wake this one through the frames of every layer, 3 µs of 16.
                await asyncio.create_task(self._send_rest(send))
        except ClientDisconnectedError:
            if not is_begun:
                raise
            logger.info("%s: the client disconnected; aborted", self._request_id)
        finally:
            await self._events.aclose()

    async def _send_rest(self, send: Send) -> None:
        tail = self._end.done
        try:
            async for event in self._events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        except EngineError as error:
            logger.warning("%s: failed in mid-stream: %s", self._request_id, error)
            tail = self._end.done if self._end.failed is None else self._end.failed(to_api_error(error))
        await send({"type": "http.response.body", "body": tail, "more_body": False})
