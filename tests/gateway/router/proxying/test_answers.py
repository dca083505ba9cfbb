import asyncio
from typing import Any

import pytest

from stoker_gateway.router import upstream_connection

BODY = b'{ "model":"m",  "x":"\\u00e9", "messages":[{"role":"user","content":"hi"}] }'


async def test_a_body_and_its_answer_pass_unchanged(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    replica = await start_replica()
    gateway = await start_gateway(replica)
    response = await gateway.client.post("/v1/chat/completions?a=b%20c", content=BODY, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.content) == (200, b'{"hello": 1}')
    (request,) = replica.requests
    assert request.body == BODY
    assert request.line == "POST /v1/chat/completions?a=b%20c HTTP/1.1"


async def test_pieces_that_are_longer_than_what_is_kept_go_on(start_replica: Any, start_gateway: Any, wire: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_connection, "HIGH_WATER_BYTES", 1000)
    piece, num_pieces = bytes(100_000), 20

    async def answer(_request: Any, writer: Any) -> None:
        writer.write(wire.stream())
        for _ in range(num_pieces):
            writer.write(wire.chunk(piece))
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.write(wire.chunk(b""))

    gateway = await start_gateway(await start_replica(answer))
    response = await asyncio.wait_for(gateway.post(model="m"), timeout=30)
    assert len(response.content) == num_pieces * len(piece)


async def test_headers_of_a_connection_stay_on_it_and_the_others_go_on(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def answer(_request: Any, writer: Any) -> None:
        writer.write(wire.plain(b"{}", Connection="X-Hop", X_Hop="1", Keep_Alive="timeout=5", X_Own="2", Date="never"))

    replica = await start_replica(answer)
    gateway = await start_gateway(replica)
    sent = {
        "Connection": "close, X-Secret",
        "X-Secret": "1",
        "TE": "trailers",
        "Expect": "100-continue",
        "traceparent": "00-a-b-01",
        "X-Forwarded-For": "1.2.3.4",
    }
    response = await gateway.client.post("/v1/completions", content=BODY, headers=sent)
    (request,) = replica.requests
    got = {name.lower(): value for name, value in request.headers}
    assert {"x-secret", "te", "expect", "connection", "transfer-encoding"} & set(got) == set()
    assert (got["traceparent"], got["x-forwarded-for"], got["content-length"]) == ("00-a-b-01", "1.2.3.4, 127.0.0.1", str(len(BODY)))
    assert got["host"] == f"127.0.0.1:{gateway.port}"
    assert response.headers["x-own"] == "2"
    assert {"x-hop", "keep-alive"} & set(response.headers) == set()
    assert "never" not in response.headers.get_list("date")


async def test_a_request_id_is_taken_or_made_and_is_the_same_everywhere(start_replica: Any, start_gateway: Any) -> None:
    replica = await start_replica()
    gateway = await start_gateway(replica)
    for given in ("mine-1", "not\tvisible", ""):
        response = await gateway.client.post("/v1/completions", content=BODY, headers={"X-Request-Id": given})
        assert response.headers.get_list("x-request-id") == [replica.requests[-1].header("x-request-id")] == [gateway.records[-1].request_id]
        assert (response.headers["x-request-id"] == given) == (given == "mine-1")


async def test_a_chunked_request_goes_on_with_a_length_and_without_its_trailers(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    replica = await start_replica()
    gateway = await start_gateway(replica)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    data = await gateway.send(head + wire.chunk(b'{"model":') + wire.chunk(b'"m"}') + b"0\r\nAuthorization: Bearer stolen\r\n\r\n")
    assert data.startswith(b"HTTP/1.1 200 OK")
    (request,) = replica.requests
    assert request.body == b'{"model":"m"}'
    assert request.header("content-length") == "13"
    assert request.header("authorization") is None


async def test_each_piece_of_a_stream_is_passed_on_before_the_next_one_comes(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    read = asyncio.Event()

    async def answer(_request: Any, writer: Any) -> None:
        writer.write(wire.stream())
        for number in range(20):
            writer.write(wire.chunk(b"data: %d\n\n" % number))
            await asyncio.wait_for(read.wait(), timeout=10)
            read.clear()
        writer.write(wire.chunk(b"data: [DONE]\n\n") + b"0\r\nX-Trailer: 1\r\n\r\n")

    gateway = await start_gateway(await start_replica(answer))
    pieces = []
    async with gateway.client.stream("POST", "/v1/chat/completions", json={"model": "m", "stream": True}) as response:
        async for piece in response.aiter_raw():
            pieces.append(piece)
            read.set()
    assert pieces == [*(b"data: %d\n\n" % number for number in range(20)), b"data: [DONE]\n\n"]
    assert response.headers["content-type"] == "text/event-stream"
    assert gateway.records[-1].num_bytes == sum(map(len, pieces))


async def test_an_answer_that_ends_with_its_connection_is_whole(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def answer(_request: Any, writer: Any) -> None:
        writer.write(wire.head(Content_Type="text/plain") + b"all of it")
        writer.close()

    gateway = await start_gateway(await start_replica(answer))
    response = await gateway.post()
    assert response.text == "all of it"


async def test_an_interim_answer_is_not_taken_for_the_answer(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def answer(_request: Any, writer: Any) -> None:
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + wire.plain(b"{}"))

    replica = await start_replica(answer)
    gateway = await start_gateway(replica)
    for _ in range(2):
        response = await gateway.post()
        assert (response.status_code, response.content) == (200, b"{}")
        assert "link" not in response.headers
    assert replica.num_connections == 1


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
async def test_an_answer_without_a_body_is_whole_whatever_length_it_names(start_replica: Any, start_gateway: Any, wire: Any, status: str) -> None:
    async def answer(_request: Any, writer: Any) -> None:
        writer.write(wire.head(status, Content_Length="1000", ETag="a"))

    gateway = await start_gateway(await start_replica(answer))
    for _ in range(2):
        response = await gateway.post()
        assert (str(response.status_code), response.headers["etag"], response.content) == (status[:3], "a", b"")
    assert [record.error for record in gateway.records] == ["", ""]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/tokenize", "/v1/of/tomorrow"])
async def test_every_post_that_names_a_model_is_sent_on(start_replica: Any, start_gateway: Any, path: str) -> None:
    replica = await start_replica()
    gateway = await start_gateway(replica)
    assert (await gateway.post(path)).status_code == 200
    assert replica.requests[0].line == f"POST {path} HTTP/1.1"


async def test_a_replicas_own_error_is_the_answer(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def answer(_request: Any, writer: Any) -> None:
        writer.write(wire.error("internal_error", "500 Internal Server Error"))

    replica = await start_replica(answer)
    gateway = await start_gateway(replica)
    response = await gateway.post()
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
    assert len(replica.requests) == 1


@pytest.mark.parametrize("num_requests", [60, pytest.param(500, marks=pytest.mark.stress)])
async def test_answers_of_many_at_once_are_not_limited_in_number(start_replica: Any, start_gateway: Any, wire: Any, until: Any, num_requests: int) -> None:
    go = asyncio.Event()

    async def answer(_request: Any, writer: Any) -> None:
        await go.wait()
        writer.write(wire.plain(b"{}"))

    replica = await start_replica(answer)
    gateway = await start_gateway(replica)

    async def one() -> bytes:
        return await gateway.send(wire.post(b'{"model":"m"}', "Connection: close"))

    asking = [asyncio.create_task(one()) for _ in range(num_requests)]
    await until(lambda: len(replica.requests) == num_requests)
    assert gateway.num_in_flight == num_requests
    go.set()
    assert all(data.startswith(b"HTTP/1.1 200") for data in await asyncio.gather(*asking))
    await until(lambda: gateway.num_in_flight == 0)
