import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

from stoker_engine.errors import EngineNotReadyError
from stoker_gateway.api.event_stream import EventStream
from stoker_gateway.http.disconnect import ClientDisconnectedError

SCOPE = {"type": "http"}


class Connection:
    """As uvicorn's: a disconnect is received when the client has left, and when the answer is over."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.is_over = asyncio.Event()

    async def receive(self) -> Message:
        await self.is_over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body" and not message["more_body"]:
            self.is_over.set()


async def events(*pieces: bytes) -> AsyncGenerator[bytes]:
    for piece in pieces:
        yield piece


async def test_a_client_with_its_whole_answer_is_not_taken_for_one_that_left(caplog: pytest.LogCaptureFixture) -> None:
    connection = Connection()
    with caplog.at_level(logging.INFO):
        await EventStream("id", events(b"a", b"b"))(SCOPE, connection.receive, connection.send)
    assert [message.get("body") for message in connection.sent] == [None, b"a", b"b", b"data: [DONE]\n\n"]
    assert "disconnected" not in caplog.text


async def test_a_client_that_leaves_in_mid_stream_ends_the_events(caplog: pytest.LogCaptureFixture) -> None:
    connection = Connection()
    is_closed = False

    async def endless() -> AsyncGenerator[bytes]:
        nonlocal is_closed
        try:
            yield b"a"
            connection.is_over.set()
            await asyncio.Event().wait()
        finally:
            is_closed = True

    with caplog.at_level(logging.INFO):
        await EventStream("id", endless())(SCOPE, connection.receive, connection.send)
    assert is_closed and "id: the client disconnected; aborted" in caplog.text


async def test_what_is_wrong_before_the_first_event_is_raised_with_nothing_sent() -> None:
    async def refused() -> AsyncGenerator[bytes]:
        raise EngineNotReadyError("not yet")
        yield b""

    connection = Connection()
    with pytest.raises(EngineNotReadyError):
        await EventStream("id", refused())(SCOPE, connection.receive, connection.send)
    assert connection.sent == []


async def test_a_client_that_leaves_before_the_first_event_has_no_answer() -> None:
    async def late() -> AsyncGenerator[bytes]:
        await asyncio.Event().wait()
        yield b""

    connection = Connection()
    connection.is_over.set()
    with pytest.raises(ClientDisconnectedError):
        await EventStream("id", late())(SCOPE, connection.receive, connection.send)
    assert connection.sent == []
