import asyncio
from typing import Any

import pytest

from stoker_gateway.http.disconnect import ClientDisconnectedError, cancelled_by_disconnect


class Connection:
    """`receive` of an ASGI server whose client has sent its body."""

    def __init__(self) -> None:
        self._gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    def leave(self) -> None:
        self._gone.set()


async def test_what_runs_is_cancelled_when_the_client_leaves() -> None:
    connection = Connection()
    was_cancelled = False
    with pytest.raises(ClientDisconnectedError):
        async with cancelled_by_disconnect(connection.receive):
            connection.leave()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                was_cancelled = True
                raise
    assert was_cancelled
    await asyncio.sleep(0)  # the task itself is not cancelled


async def test_what_ends_first_is_not_disturbed() -> None:
    connection = Connection()
    async with cancelled_by_disconnect(connection.receive):
        await asyncio.sleep(0)
    connection.leave()
    await asyncio.sleep(0)


async def test_a_cancellation_from_outside_goes_on() -> None:
    async def serve() -> None:
        async with cancelled_by_disconnect(Connection().receive):
            await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_inside_stays_itself() -> None:
    with pytest.raises(LookupError):
        async with cancelled_by_disconnect(Connection().receive):
            raise LookupError
