import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.types import Receive, Scope, Send

from stoker_gateway.api import http_protocol
from stoker_gateway.api.http_server import listen, make_server

SLOW_SECONDS = 0.5


async def slow(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers after more time than a head may take."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await asyncio.sleep(SLOW_SECONDS)
    await send({"type": "http.response.body", "body": b"done"})


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", SLOW_SECONDS / 5)
    with listen("127.0.0.1", 0) as listener:
        server = make_server(slow)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield listener.getsockname()[1]
        server.should_exit = True
        await serving


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nX: "])
async def test_a_head_that_never_ends_ends_its_connection(port: int, begun: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(begun)
    assert await asyncio.wait_for(reader.read(), timeout=30) == b""
    writer.close()
    await writer.wait_closed()


async def test_an_upgrade_to_another_protocol_is_no_news_for_the_log(port: int, caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"done"), timeout=30)
    assert caplog.records == []
    writer.close()
    await writer.wait_closed()


async def test_an_answer_that_takes_longer_is_not_cut_by_a_head_that_has_begun(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTT")
    assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"done"), timeout=30)
    writer.close()
    await writer.wait_closed()
