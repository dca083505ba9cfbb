import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message
from uvicorn.protocols.http.flow_control import FlowControl

from stoker_engine.errors import EngineNotReadyError
from stoker_gateway.api.event_stream import EventStream
from stoker_gateway.http.disconnect import CLIENT, ClientDisconnectedError, ClientLink


class Connection:
    """What the server knows of one client, and what that client gets."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.client = ClientLink(FlowControl(asyncio.Transport()))
        self.scope = {"type": "http", CLIENT: self.client}

    async def receive(self) -> Message:
        raise AssertionError("nothing more is received")

    async def send(self, message: Message) -> None:
        self.sent.append(message)


async def events(*pieces: bytes) -> AsyncGenerator[bytes]:
    for piece in pieces:
        yield piece


async def test_a_stream_is_its_events_and_their_end() -> None:
    connection = Connection()
    await EventStream("id", events(b"a", b"b"))(connection.scope, connection.receive, connection.send)
    assert [message.get("body") for message in connection.sent] == [None, b"a", b"b", b"data: [DONE]\n\n"]


async def test_a_client_that_leaves_in_mid_stream_ends_the_events(caplog: pytest.LogCaptureFixture) -> None:
    connection = Connection()
    is_closed = False

    async def endless() -> AsyncGenerator[bytes]:
        nonlocal is_closed
        try:
            yield b"a"
            asyncio.get_running_loop().call_soon(connection.client.leave)
            await asyncio.Event().wait()
        finally:
            is_closed = True

    with caplog.at_level(logging.INFO):
        await EventStream("id", endless())(connection.scope, connection.receive, connection.send)
    assert is_closed and "id: the client disconnected; aborted" in caplog.text


async def test_what_is_wrong_before_the_first_event_is_raised_with_nothing_sent() -> None:
    async def refused() -> AsyncGenerator[bytes]:
        raise EngineNotReadyError("not yet")
        yield b""

    connection = Connection()
    with pytest.raises(EngineNotReadyError):
        await EventStream("id", refused())(connection.scope, connection.receive, connection.send)
    assert connection.sent == []


async def test_a_client_that_leaves_before_the_first_event_has_no_answer() -> None:
    async def late() -> AsyncGenerator[bytes]:
        await asyncio.Event().wait()
        yield b""

    connection = Connection()
    connection.client.leave()
    with pytest.raises(ClientDisconnectedError):
        await EventStream("id", late())(connection.scope, connection.receive, connection.send)
    assert connection.sent == []
