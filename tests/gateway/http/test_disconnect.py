import asyncio

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from stoker_gateway.http.disconnect import CLIENT, ClientDisconnectedError, ClientLink, cancelled_by_disconnect


class Connection(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


def link() -> ClientLink:
    return ClientLink(FlowControl(Connection()))


async def test_what_runs_is_cancelled_when_the_client_leaves() -> None:
    client = link()
    was_cancelled = False
    with pytest.raises(ClientDisconnectedError), cancelled_by_disconnect({CLIENT: client}):
        asyncio.get_running_loop().call_soon(client.leave)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled = True
            raise
    assert was_cancelled
    await asyncio.sleep(0)  # the task itself is not cancelled


async def test_what_ends_first_is_not_disturbed() -> None:
    client = link()
    with cancelled_by_disconnect({CLIENT: client}):
        await asyncio.sleep(0)
    client.leave()
    await asyncio.sleep(0)


async def test_a_cancellation_from_outside_goes_on() -> None:
    async def serve() -> None:
        with cancelled_by_disconnect({CLIENT: link()}):
            await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_inside_stays_itself() -> None:
    with pytest.raises(LookupError), cancelled_by_disconnect({CLIENT: link()}):
        raise LookupError


async def test_nothing_is_begun_for_a_client_that_has_left() -> None:
    client = link()
    client.leave()
    with pytest.raises(ClientDisconnectedError), cancelled_by_disconnect({CLIENT: client}):
        pytest.fail("it was begun")


async def test_a_connection_is_read_on_when_the_work_at_its_request_begins() -> None:
    """It may have stood still for a body that was longer than what is kept of it."""
    connection = Connection()
    flow = FlowControl(connection)
    flow.pause_reading()
    with cancelled_by_disconnect({CLIENT: ClientLink(flow)}):
        assert connection.is_read
