import asyncio
import json
from typing import Any

import pytest

from stoker_gateway.http.drain import Drain
from stoker_gateway.router import held_stream
from stoker_gateway.router.exchange import Exchange
from stoker_gateway.router.lifecycle import Lifecycle

COMMENT = ": waiting"


@pytest.fixture(autouse=True)
def frequent_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_stream, "HEARTBEAT_SECONDS", 0.03)


@pytest.mark.case("C100")
async def test_a_stream_has_comments_until_its_first_token_and_none_after(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def answer(_request: Any, writer: Any) -> None:
        await asyncio.sleep(0.2)
        writer.write(wire.stream() + wire.chunk(b"data: 1\n\n"))
        await asyncio.sleep(0.1)
        writer.write(wire.chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    gateway = await start_gateway(await start_replica(answer))
    response = await gateway.post(stream=True)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    *comments, first, last, rest = response.text.split("\n\n")
    assert len(comments) > 1 and set(comments) == {COMMENT}
    assert (first, last, rest) == ("data: 1", "data: [DONE]", "")
    assert gateway.records[-1].first_byte_seconds >= 0.19


@pytest.mark.case("C100")
async def test_an_answer_that_is_no_stream_has_no_comments(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def answer(_request: Any, writer: Any) -> None:
        await asyncio.sleep(0.1)
        writer.write(wire.plain(b"{}"))

    gateway = await start_gateway(await start_replica(answer))
    assert (await gateway.post(stream=False)).content == b"{}"
    assert (await gateway.post("/v1/embeddings", stream=True)).content == b"{}"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_a_refusal_after_comments_is_an_event(start_replica: Any, start_gateway: Any, wire: Any, path: str) -> None:
    async def answer(_request: Any, writer: Any) -> None:
        await asyncio.sleep(0.1)
        writer.write(wire.error("no_such_grammar", "400 Bad Request"))

    gateway = await start_gateway(await start_replica(answer))
    response = await gateway.post(path, stream=True)
    *comments, last, rest = response.text.split("\n\n")
    assert response.status_code == 200 and set(comments) == {COMMENT} and rest == ""
    assert json.loads(last.partition("data: ")[2])["error"]["message"] == "no"
    assert gateway.records[-1].error == "no_such_grammar"


async def test_a_stream_goes_to_another_replica_also_after_comments(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    asked: list[Any] = []

    async def answer(request: Any, writer: Any) -> None:
        asked.append(request)
        if len(asked) == 2:
            writer.write(wire.stream() + wire.chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
            return
        await asyncio.sleep(0.1)
        writer.write(wire.error("draining", Retry_After="1", Connection="close"))
        writer.close()

    gateway = await start_gateway(await start_replica(answer), await start_replica(answer))
    response = await gateway.post(stream=True)
    assert response.text.endswith(f"{COMMENT}\n\ndata: [DONE]\n\n")
    assert gateway.records[-1].attempts == 2


async def test_a_client_that_leaves_while_it_gets_comments_ends_its_request(start_replica: Any, start_gateway: Any, wire: Any, until: Any) -> None:
    async def answer(_request: Any, _writer: Any) -> None:
        await asyncio.Event().wait()

    replica = await start_replica(answer)
    gateway = await start_gateway(replica)
    reader, writer = await gateway.connect()
    writer.write(wire.post(b'{"model":"m","stream":true}'))
    await reader.readuntil(COMMENT.encode())
    writer.close()
    await until(lambda: replica.num_open == 0 and bool(gateway.records))
    assert gateway.num_in_flight == 0


async def test_comments_that_a_client_has_not_taken_yet_leave_the_answer_a_head_of_its_own(until: Any) -> None:
    sent: list[Any] = []
    is_writable = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append("waits")
        await is_writable.wait()
        sent.append(message.get("status", "body"))

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "raw_path": b"/v1/completions", "headers": []}
    exchange = Exchange(scope, asyncio.Event().wait, send, Lifecycle(Drain(1.0), 0.0))
    beats = held_stream.Heartbeats(exchange)
    await until(lambda: sent == ["waits"])
    beats.stop()
    assert not exchange.has_begun
    is_writable.set()
    await exchange.answer(400, (), b"no")
    assert sent == ["waits", "waits", 400, "waits", "body"]
