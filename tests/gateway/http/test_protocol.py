import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from stoker_gateway.http import protocol
from stoker_gateway.http.disconnect import CLIENT, ClientDisconnectedError, ClientLink, cancelled_by_disconnect
from stoker_gateway.http.server import listen, make_server

SLOW_SECONDS = 0.5


async def slow(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers after more time than a head may take."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await asyncio.sleep(SLOW_SECONDS)
    await send({"type": "http.response.body", "body": b"done"})


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the request's body."""
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def hasty(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers without the request's body."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hasty"})


@asynccontextmanager
async def serving(app: ASGIApp, kind: type[protocol.HttpProtocol] = protocol.HttpProtocol) -> AsyncIterator[int]:
    """The port."""
    with listen("127.0.0.1", 0) as listener:
        server = make_server(app, kind)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        yield listener.getsockname()[1]
        server.should_exit = True
        await task


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", SLOW_SECONDS / 5)
    async with serving(slow) as port:
        yield port


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nX: "])
async def test_a_head_that_never_ends_ends_its_connection(port: int, begun: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(begun)
    assert await asyncio.wait_for(reader.read(), timeout=30) == b""
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_client_has_left_only_where_it_ends_its_connection_before_its_answer(*, is_answered: bool) -> None:
    links = list[ClientLink]()
    ended = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        links.append(scope[CLIENT])
        if is_answered:
            await hasty(scope, receive, send)
        while (await receive())["type"] != "http.disconnect":
            continue
        ended.set()

    async with serving(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        if is_answered:
            await asyncio.wait_for(reader.readuntil(b"hasty"), timeout=30)
        while not links:
            await asyncio.sleep(0.01)
        writer.close()
        await asyncio.wait_for(ended.wait(), timeout=30)
    # The server has ended, and every connection with it.
    assert [link.has_left for link in links] == [not is_answered]


async def test_a_client_that_sends_what_nobody_reads_is_seen_to_leave() -> None:
    began, left = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with cancelled_by_disconnect(scope):
                began.set()
                await asyncio.Event().wait()
        except ClientDisconnectedError:
            left.set()
        await hasty(scope, receive, send)

    async with serving(app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        await asyncio.wait_for(began.wait(), timeout=30)
        writer.write(bytes(999_999))
        await writer.drain()
        writer.close()
        await asyncio.wait_for(left.wait(), timeout=30)


async def test_a_connection_that_has_ended_leaves_nothing_to_the_garbage_collector() -> None:
    connections, cycles = weakref.WeakSet[protocol.HttpProtocol](), weakref.WeakSet[RequestResponseCycle]()

    class Seen(protocol.HttpProtocol):
        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            connections.add(self)
            cycles.add(self.cycle)

    async with serving(echo, Seen) as port:
        gc.disable()
        try:
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
                assert (await asyncio.wait_for(reader.read(), timeout=30)).endswith(b"hi")
                writer.close()
                await writer.wait_closed()
            async with asyncio.timeout(30):
                while connections or cycles:
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()


async def test_an_upgrade_to_another_protocol_is_no_news_for_the_log(port: int, caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"done"), timeout=30)
    assert caplog.records == []
    writer.close()
    await writer.wait_closed()


async def test_a_request_that_offers_another_protocol_is_read_with_its_body_and_the_next_one_too() -> None:
    offer = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
    whole = offer + b"Content-Length: 3\r\n\r\none"
    chunked = offer + b"Transfer-Encoding: chunked\r\n\r\n2\r\ntw\r\n1\r\no\r\n0\r\n\r\n"
    plain = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\nthree"
    async with serving(echo) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(whole + chunked + plain)
        answer = await asyncio.wait_for(reader.read(), timeout=30)
        writer.close()
        await writer.wait_closed()
    assert [part.rpartition(b"\r\n\r\n")[2] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"one", b"two", b"three"]


async def test_an_answer_that_takes_longer_is_not_cut_by_a_head_that_has_begun(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTT")
    assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"done"), timeout=30)
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("rest", [b"x", b"x" * 10])
async def test_what_is_sent_of_a_request_after_its_answer_keeps_no_connection(monkeypatch: pytest.MonkeyPatch, rest: bytes) -> None:
    monkeypatch.setattr(protocol, "DISCARD_SECONDS", 0.1)
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.1)
    async with serving(hasty) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"hasty"), timeout=30)
        writer.write(rest)
        assert await asyncio.wait_for(reader.read(), timeout=30) == b""
        writer.close()
        await writer.wait_closed()


async def test_chunks_without_end_after_an_answer_end_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "DISCARD_SECONDS", 0.1)
    async with serving(hasty) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"hasty"), timeout=30)
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(30):
                while True:
                    writer.write(b"1\r\nx\r\n")
                    await writer.drain()
                    await asyncio.sleep(0.01)


async def test_what_cannot_be_read_of_a_request_after_its_answer_ends_the_connection_when_that_is_sent() -> None:
    size = 8 << 20

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        await send({"type": "http.response.body", "body": bytes(size)})

    async with serving(answer) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"zz\r\n")
        assert len(await asyncio.wait_for(reader.read(), timeout=30)) == size
        writer.close()
        await writer.wait_closed()


async def test_a_connection_goes_on_when_the_rest_of_a_request_comes_after_its_answer() -> None:
    async with serving(hasty) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n")
            await asyncio.wait_for(reader.readuntil(b"hasty"), timeout=30)
            writer.write(b"x" * 10)
        writer.close()
        await writer.wait_closed()


async def test_a_client_that_leaves_is_seen_behind_the_requests_that_it_sent_ahead() -> None:
    seen = asyncio.Event()

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            begun.set()
        seen.set()

    begun = asyncio.Event()
    async with serving(wait) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await begun.wait()
        for _ in range(3):
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await asyncio.sleep(0.01)
        writer.transport.abort()
        await asyncio.wait_for(seen.wait(), timeout=30)


@pytest.mark.parametrize("bad", [b"BAD\n\n", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"])
async def test_what_cannot_be_read_is_refused_after_the_answers_to_the_requests_before(bad: bytes) -> None:
    go_on = asyncio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"done"})

    async with serving(answer) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 2)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(bad + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.sleep(0.05)
        go_on.set()
        first, second, refusal = (await asyncio.wait_for(reader.read(), timeout=30)).split(b"HTTP/1.1 ")
        writer.close()
        await writer.wait_closed()
    assert (first, second[:3], second[-8:], refusal[:3]) == (b"done", b"200", b"\r\n\r\ndone", b"400")


async def test_a_body_that_cannot_be_read_cuts_the_answer_that_has_begun(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"zz\r\n")
    assert await asyncio.wait_for(reader.read(), timeout=30) == b""
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(("method", "body"), [("GET", b"onetwo"), ("HEAD", b"")])
async def test_http_1_0_gets_no_chunks(method: str, body: bytes) -> None:
    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})

    async with serving(stream) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{method} / HTTP/1.0\r\n\r\n".encode())
        head, _, answer = (await asyncio.wait_for(reader.read(), timeout=30)).lower().partition(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
    assert b"\r\nconnection: close" in head and b"transfer-encoding" not in head
    assert answer == body


async def test_http_1_0_gets_an_answer_with_a_length_as_it_is() -> None:
    async with serving(hasty) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), timeout=30)
        writer.close()
        await writer.wait_closed()
    assert b"content-length: 5\r\n" in answer and answer.endswith(b"\r\n\r\nhasty")
