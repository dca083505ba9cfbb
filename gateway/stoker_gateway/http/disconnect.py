"""Ends a request's work when its client goes away, streamed or not, without polling."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Scope
from uvicorn.protocols.http.flow_control import FlowControl

CLIENT_CLOSED_REQUEST = 499
"""The status, nginx's, where the client left before any answer; nobody receives it."""

CLIENT = "stoker.client"
"""In a request's scope: its ClientLink."""


class ClientDisconnectedError(Exception):
    """The client closed the connection before its answer was complete; nobody reads a response."""


class ClientLink:
    """What ASGI does not tell of a request's client, or only to a task of its own that waits for it."""

    __slots__ = ("_flow", "_task", "has_left")

    def __init__(self, flow: FlowControl) -> None:
        self._flow = flow
        self._task: asyncio.Task[object] | None = None
        self.has_left = False
        """Before it had its whole answer."""

    @property
    def takes_more(self) -> bool:
        """Whether what is sent now waits for nothing."""
        return not self._flow.write_paused

    @property
    def is_watched(self) -> bool:
        return self._task is not None

    def leave(self) -> None:
        if not self.has_left:
            self.has_left = True
            if self._task is not None:
                self._task.cancel()

    def watch(self, task: asyncio.Task[object]) -> None:
        """Cancels it once, when the client leaves. Nobody would see that while the connection is not read."""
        self._task = task
        self._flow.resume_reading()

    def forget(self) -> None:
        """The task."""
        self._task = None


@contextmanager
def cancelled_by_disconnect(scope: Scope) -> Iterator[None]:
    """Cancels what runs inside when the client disconnects, and raises ClientDisconnectedError in its place."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("cancelled_by_disconnect needs a task")
    client: ClientLink = scope[CLIENT]
    if client.has_left:
        raise ClientDisconnectedError
    try:
        client.watch(task)
        yield
    except asyncio.CancelledError:
        # Somebody else may have cancelled the task too (the server's end): then the cancellation goes on.
        if client.has_left and task.uncancel() == 0:
            raise ClientDisconnectedError from None
        raise
    finally:
        client.forget()
