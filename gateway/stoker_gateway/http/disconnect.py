"""Ends a request's work when its client goes away, streamed or not, without polling."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive

CLIENT_CLOSED_REQUEST = 499
"""The status, nginx's, where the client left before any answer; nobody receives it."""


class ClientDisconnectedError(Exception):
    """The client closed the connection before its answer was complete; nobody reads a response."""


@asynccontextmanager
async def cancelled_by_disconnect(receive: Receive) -> AsyncIterator[None]:
    """Cancels what runs inside when the client disconnects, and raises ClientDisconnectedError in its place.

    The request's body must have been read: `receive` has nothing but the disconnect left to say.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("cancelled_by_disconnect needs a task")
    is_gone = False

    async def watch() -> None:
        nonlocal is_gone
        while (await receive())["type"] != "http.disconnect":
            continue
        is_gone = True
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        # Somebody else may have cancelled the task too (the server's end): then the cancellation goes on.
        if is_gone and task.uncancel() == 0:
            raise ClientDisconnectedError from None
        raise
    finally:
        watcher.cancel()
