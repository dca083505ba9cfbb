import asyncio
import json
from typing import Any

import pytest

from stoker_gateway.http import protocol as http_protocol
from stoker_gateway.router import client_protocol, request_body

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"

SMUGGLED = {
    "two lengths": HEAD + b"Content-Length: 13\r\nContent-Length: 13\r\n\r\n",
    "two unlike lengths": HEAD + b"Content-Length: 13\r\nContent-Length: 0\r\n\r\n",
    "a list of lengths": HEAD + b"Content-Length: 13, 13\r\n\r\n",
    "a signed length": HEAD + b"Content-Length: +13\r\n\r\n",
    "a length and chunks": HEAD + b"Content-Length: 13\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunks and a length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 13\r\n\r\n",
    "an unknown coding": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n",
    "a coding after chunked": HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n",
    "an empty coding": HEAD + b"Transfer-Encoding:\r\nContent-Length: 13\r\n\r\n",
    "two codings": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
    "a space before the colon": HEAD + b"Transfer-Encoding : chunked\r\n\r\n",
    "a bare LF after the line": b"POST /v1/completions HTTP/1.1\nHost: a\r\nContent-Length: 13\r\n\r\n",
    "a bare LF after a header": HEAD + b"X: a\nContent-Length: 13\r\n\r\n",
    "a bare CR": HEAD + b"X: a\rContent-Length: 13\r\n\r\n",
    "a folded header": HEAD + b"X: a\r\n Content-Length: 13\r\n\r\n",
    "a NUL": HEAD + b"X: a\0b\r\nContent-Length: 13\r\n\r\n",
    "a header before its name": b"POST /v1/completions HTTP/1.1\r\n X: a\r\nHost: a\r\n\r\n",
    "no host": b"POST /v1/completions HTTP/1.1\r\nContent-Length: 13\r\n\r\n",
    "two hosts": HEAD + b"Host: b\r\nContent-Length: 13\r\n\r\n",
    "an unknown version": b"POST /v1/completions HTTP/1.2\r\nHost: a\r\n\r\n",
    "no version": b"GET /v1/models\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /v1/completions HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a negative length": HEAD + b"Content-Length: -13\r\n\r\n",
    "a hexadecimal length": HEAD + b"Content-Length: 0xd\r\n\r\n",
    "a length with a space": HEAD + b"Content-Length: 1 3\r\n\r\n",
    "a length beyond all numbers": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "a coding after a vertical tab": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n",
    "a coding in capitals and a length": HEAD + b"Transfer-Encoding: CHUNKED\r\nContent-Length: 13\r\n\r\n",
    "a line without a colon": HEAD + b"X\r\nContent-Length: 13\r\n\r\n",
    "a header without a name": HEAD + b": a\r\nContent-Length: 13\r\n\r\n",
    "a name that is none": HEAD + b"X(y: a\r\nContent-Length: 13\r\n\r\n",
    "a space in the path": b"POST /v1/completions x HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\n\r\n",
    "tabs in the line": b"POST\t/v1/completions\tHTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\n\r\n",
}


@pytest.mark.parametrize("what", SMUGGLED)
async def test_a_request_that_two_servers_might_read_differently_is_refused(start_replica: Any, start_gateway: Any, what: str) -> None:
    replica = await start_replica()
    gateway = await start_gateway(replica)
    data = await gateway.send(SMUGGLED[what] + b'{"model":"m"}')
    assert data.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b'"code":"invalid_http"' in data
    assert data.count(b"HTTP/1.1") == 1
    assert replica.requests == []


ODD_CHUNKS = [b"5;\0\r\nhello", b"5;a\rb\r\nhello", b"5 \r\nhello", b" 5\r\nhello", b"0x5\r\nhello", b"+5\r\nhello", b"\r\nhello", b"5\r\nhello\r\n0\n\n"]


@pytest.mark.parametrize("chunk", [b"-5\r\nhello", b"5\nhello", b"FFFFFFFFFFFFFFFFF\r\nhello", b"5;a=b\nhello", b"zz\r\nhello", b"5\r\nhello!", *ODD_CHUNKS])
async def test_a_chunk_of_no_clear_size_is_refused(start_replica: Any, start_gateway: Any, chunk: bytes) -> None:
    replica = await start_replica()
    gateway = await start_gateway(replica)
    data = await gateway.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"\r\n0\r\n\r\n")
    assert data.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert replica.requests == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"no json", None),
        (b"[]", None),
        (b'{"model": "m"', None),
        (b'{"messages": []}', "model"),
        (b'{"model": null}', "model"),
        (b'{"model": 5}', "model"),
        (b'{"model": ["m"]}', "model"),
        (b'{"model": "m", "x": ' + b"[" * 50_000, None),
        (b'\xff\xfe{"model": "m"}', None),
    ],
)
async def test_a_body_without_a_model_is_a_400_that_names_it(start_replica: Any, start_gateway: Any, body: bytes, param: str | None) -> None:
    replica = await start_replica()
    gateway = await start_gateway(replica)
    for path in ("/v1/chat/completions", "/v1/whatever"):
        response = await gateway.client.post(path, content=body)
        error = response.json()["error"]
        assert (response.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert (await gateway.post()).status_code == 200
    assert len(replica.requests) == 1


async def test_an_error_has_the_shape_of_the_api_that_was_asked(start_gateway: Any) -> None:
    gateway = await start_gateway()
    response = await gateway.client.post("/v1/messages", json={"model": "nobody's"})
    assert response.status_code == 404
    assert response.json()["type"] == "error"
    assert response.json()["error"]["type"] == "not_found_error"
    assert response.json()["request_id"] == response.headers["request-id"] == response.headers["x-request-id"]


async def test_an_unknown_model_is_a_404_and_one_without_replicas_a_503(start_gateway: Any) -> None:
    gateway = await start_gateway()
    response = await gateway.client.post("/v1/completions", json={"model": "nobody's"})
    assert (response.status_code, response.json()["error"]["code"], response.json()["error"]["param"]) == (404, "model_not_found", "model")
    (model,) = (await gateway.client.get("/v1/models")).json()["data"][:1]
    assert model["id"] == "m"


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_a_body_that_is_too_long_is_refused_before_it_has_come(start_replica: Any, start_gateway: Any, wire: Any, framing: str) -> None:
    replica = await start_replica()
    gateway = await start_gateway(replica, max_body_bytes=100_000)
    reader, writer = await gateway.connect()
    if framing == "length":
        writer.write(HEAD + b"Content-Length: 100001\r\n\r\n{")
    else:
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + wire.chunk(bytes(60_000)) + wire.chunk(bytes(60_000)))
    data = await asyncio.wait_for(reader.readuntil(b"}}"), timeout=10)
    assert data.startswith(b"HTTP/1.1 413 ") and b"connection: close" in data
    assert replica.requests == []


async def test_a_client_that_sends_all_of_a_body_that_is_too_long_still_reads_why(start_gateway: Any) -> None:
    gateway = await start_gateway(max_body_bytes=10_000)
    response = await gateway.client.post("/v1/completions", content=b"x" * 3_000_000)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")


async def test_heads_are_limited(start_gateway: Any) -> None:
    gateway = await start_gateway()
    for head in (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 300 + b"\r\n"):
        assert (await gateway.send(head)).startswith(b"HTTP/1.1 431 ")


async def test_a_head_that_does_not_end_ends_its_connection(start_gateway: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.2)
    gateway = await start_gateway()
    assert await gateway.send(HEAD + b"X: ") == b""


async def test_a_body_that_comes_by_the_byte_is_not_waited_for(start_replica: Any, start_gateway: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "BODY_SECONDS", 0.3)
    replica = await start_replica()
    gateway = await start_gateway(replica)
    reader, writer = await gateway.connect()
    writer.write(HEAD + b"Content-Length: 1000\r\n\r\n")

    async def drip() -> None:
        while True:
            writer.write(b"{")
            await asyncio.sleep(0.02)

    dripping = asyncio.create_task(drip())
    assert (await asyncio.wait_for(reader.readline(), timeout=10)).startswith(b"HTTP/1.1 408 ")
    dripping.cancel()
    assert replica.requests == []


async def test_requests_in_a_row_on_one_connection_are_answered_in_turn_and_not_without_end(
    start_replica: Any, start_gateway: Any, wire: Any, until: Any
) -> None:
    async def answer(request: Any, writer: Any) -> None:
        writer.write(wire.plain(json.dumps(json.loads(request.body)["n"]).encode()))

    gateway = await start_gateway(await start_replica(answer))
    requests = [wire.post(b'{"model":"m","n":%d}' % number) for number in range(3)]
    data = await gateway.send(b"".join(requests) + wire.post(b'{"model":"m","n":3}', "Connection: close"))
    assert [part.rpartition(b"\r\n\r\n")[2] for part in data.split(b"HTTP/1.1 ")[1:]] == [b"0", b"1", b"2", b"3"]
    endless = await gateway.send(wire.post(b'{"model":"m","n":1}') * (client_protocol.MAX_PIPELINED + 2))
    assert b"HTTP/1.1 400" in endless


OFFER = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AA")


async def test_an_upgrade_is_not_made_and_the_request_that_offers_it_is_answered(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    replica = await start_replica()
    gateway = await start_gateway(replica)
    chunked = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n" + "\r\n".join(OFFER).encode() + b"\r\n\r\n"
    requests = [
        wire.post(b'{"model":"m","n":0}', *OFFER),
        chunked + wire.chunk(b'{"model":"m",') + wire.chunk(b'"n":1}') + b"0\r\n\r\n",
        wire.post(b'{"model":"m","n":2}'),
        wire.post(b'{"model":"m","n":3}', "Connection: close, Upgrade", "Upgrade: websocket"),
    ]
    for pieces in ([b"".join(requests)], [bytes([byte]) for byte in b"".join(requests)]):
        replica.requests.clear()
        reader, writer = await gateway.connect()
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        data = await asyncio.wait_for(reader.read(), timeout=10)
        assert data.count(b"HTTP/1.1 200 OK") == 4
        assert [json.loads(request.body)["n"] for request in replica.requests] == [0, 1, 2, 3]
        assert {request.header("upgrade") for request in replica.requests} == {None}


async def test_a_tunnel_is_not_made(start_gateway: Any) -> None:
    gateway = await start_gateway()
    assert (await gateway.send(b"CONNECT 10.0.0.1:80 HTTP/1.1\r\nHost: 10.0.0.1:80\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/chat/completions", 405), ("DELETE", "/v1/models", 405), ("POST", "/v1/models", 405), ("GET", "/nothing", 404), ("PUT", "/nothing", 404)],
)
async def test_what_there_is_nothing_for_is_a_404_or_405(start_gateway: Any, method: str, path: str, status: int) -> None:
    gateway = await start_gateway()
    response = await gateway.client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", ["/sleep?level=2", "/pause", "/wake_up", "/v1%2f..%2fsleep", "//sleep", "/v1"])
async def test_nobody_controls_an_engine_through_the_gateway(start_replica: Any, start_gateway: Any, wire: Any, path: str) -> None:
    replica = await start_replica()
    gateway = await start_gateway(replica)
    answer = await gateway.send(wire.post(b'{"model":"m"}', "Connection: close", path=path))
    assert answer.startswith(b"HTTP/1.1 404 ") and b'"code":"unknown_url"' in answer
    assert replica.requests == []


async def test_a_web_page_of_elsewhere_is_refused(start_replica: Any, start_gateway: Any) -> None:
    replica = await start_replica()
    gateway = await start_gateway(replica)
    refused = await gateway.client.post("/v1/completions", json={"model": "m"}, headers={"Origin": "http://evil.example"})
    assert refused.status_code == 403 and refused.headers["x-request-id"] == gateway.records[-1].request_id
    assert (gateway.records[-1].status, gateway.records[-1].error) == (403, "origin_not_allowed")
    own = await gateway.client.post("/v1/completions", json={"model": "m"}, headers={"Origin": f"http://127.0.0.1:{gateway.port}"})
    assert own.status_code == 200
    assert replica.requests[0].header("origin") is None
