import asyncio
import gc
import json
import socket
import time
from typing import Any

import pytest

from stoker_gateway.router import client_protocol
from stoker_gateway.router.exchange import Exchange
from stoker_gateway.router.traffic import TimeoutConfig, TrafficConfig

ONE_EVENT = b'data: {"sequence_number":41}\n\n'


def streaming(wire: Any, *, then: Any) -> Any:
    """Sends one event, then does `then`."""

    async def answer(_request: Any, writer: Any) -> None:
        writer.write(wire.stream() + wire.chunk(ONE_EVENT))
        await writer.drain()
        await then(writer)

    return answer


async def forever(_writer: Any) -> None:
    await asyncio.Event().wait()


async def die(writer: Any) -> None:
    writer.transport.abort()


@pytest.mark.parametrize("kind", ["stream", "plain"])
async def test_a_client_that_leaves_ends_the_request_at_its_replica(start_replica: Any, start_gateway: Any, wire: Any, until: Any, kind: str) -> None:
    async def wait(_request: Any, _writer: Any) -> None:
        await forever(_writer)

    replica = await start_replica(streaming(wire, then=forever) if kind == "stream" else wait)
    gateway = await start_gateway(replica)
    reader, writer = await gateway.connect()
    writer.write(wire.post(b'{"model":"m"}'))
    if kind == "stream":
        await reader.readuntil(ONE_EVENT)
    await until(lambda: gateway.num_in_flight == 1 and replica.num_open == 1)
    writer.close()
    await until(lambda: replica.num_open == 0)
    await until(lambda: bool(gateway.records))
    assert gateway.num_in_flight == 0
    assert (gateway.records[0].status, gateway.records[0].error) == (200 if kind == "stream" else 499, "client_disconnected")


def num_exchanges() -> int:
    """isinstance would ask each object for its class, of which some of other libraries warn."""
    return sum(type(found) is Exchange for found in gc.get_objects())


@pytest.mark.parametrize("kind", ["stream", "plain"])
async def test_an_idle_connection_to_a_replica_keeps_nothing_of_its_last_request(
    start_replica: Any, start_gateway: Any, wire: Any, until: Any, kind: str
) -> None:
    async def end(writer: Any) -> None:
        await asyncio.sleep(0.1)  # the first event is on its way alone
        writer.write(wire.chunk(ONE_EVENT) + wire.chunk(b""))

    async def whole(_request: Any, writer: Any) -> None:
        writer.write(wire.plain(b"{}"))

    gc.collect()
    num_before = num_exchanges()
    gateway = await start_gateway(await start_replica(streaming(wire, then=end) if kind == "stream" else whole))
    response = await gateway.post(model="m")
    assert response.content == (2 * ONE_EVENT if kind == "stream" else b"{}")
    await until(lambda: bool(gateway.records))
    del response
    gc.collect()
    assert num_exchanges() <= num_before


@pytest.mark.parametrize("num_clients", [50, pytest.param(1000, marks=pytest.mark.stress)])
async def test_many_clients_that_leave_at_once_leave_nothing_behind(start_replica: Any, start_gateway: Any, wire: Any, until: Any, num_clients: int) -> None:
    replica = await start_replica(streaming(wire, then=forever))
    gateway = await start_gateway(replica)
    clients = [await gateway.connect() for _ in range(num_clients)]
    for _, writer in clients:
        writer.write(wire.post(b'{"model":"m"}'))
    await until(lambda: len(replica.requests) == num_clients)
    for _, writer in clients:
        writer.transport.abort()
    await until(lambda: replica.num_open == 0 and len(gateway.records) == num_clients)
    assert gateway.num_in_flight == gateway.lifecycle.drain.num_in_flight == 0


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_a_stream_whose_replica_dies_ends_with_an_error_event(start_replica: Any, start_gateway: Any, wire: Any, path: str) -> None:
    gateway = await start_gateway(await start_replica(streaming(wire, then=die)))
    response = await gateway.post(path, stream=True)
    first, last, rest = response.text.split("\n\n")
    assert (response.status_code, first + "\n\n", rest) == (200, ONE_EVENT.decode(), "")
    assert last.startswith("data: " if path == "/v1/chat/completions" else "event: error\ndata: ")
    error = json.loads(last.partition("data: ")[2])
    assert "failed" in (error if path == "/v1/responses" else error["error"])["message"]
    assert error.get("sequence_number") == (42 if path == "/v1/responses" else None)
    assert gateway.records[-1].error == "replica_failed"


async def test_a_stream_that_is_cut_within_an_event_ends_with_an_event_of_its_own(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def cut(writer: Any) -> None:
        writer.write(b"40\r\ndata: {")
        await writer.drain()
        await asyncio.sleep(0)
        writer.close()

    gateway = await start_gateway(await start_replica(streaming(wire, then=cut)))
    response = await gateway.post(stream=True)
    *_, last, rest = response.text.split("\n\n")
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "replica_failed"
    assert rest == ""


@pytest.mark.parametrize("framing", [{"Content_Length": "100"}, {"Transfer_Encoding": "chunked"}])
async def test_an_answer_of_another_kind_that_is_cut_shows_it(start_replica: Any, start_gateway: Any, wire: Any, framing: dict[str, str]) -> None:
    async def answer(_request: Any, writer: Any) -> None:
        writer.write(wire.head(Content_Type="application/json", **framing) + (b"{" if "Content_Length" in framing else wire.chunk(b"{")))
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.transport.abort()

    gateway = await start_gateway(await start_replica(answer))
    data = await gateway.send(wire.post(b'{"model":"m"}'))
    assert data.startswith(b"HTTP/1.1 200 OK")
    assert not data.endswith(b"0\r\n\r\n")
    assert gateway.records[-1].error == "replica_failed"
    assert gateway.num_in_flight == 0


async def test_garbage_in_an_answer_is_an_error(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def answer(_request: Any, writer: Any) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n")

    gateway = await start_gateway(await start_replica(answer))
    response = await gateway.post()
    assert (response.status_code, response.json()["error"]["code"]) == (502, "replica_failed")


async def test_a_stream_that_falls_silent_ends_and_a_slow_one_goes_on(start_replica: Any, start_gateway: Any, wire: Any, until: Any) -> None:
    async def slow_then_silent(writer: Any) -> None:
        for _ in range(8):
            await asyncio.sleep(0.05)
            writer.write(wire.chunk(ONE_EVENT))
        await forever(writer)

    replica = await start_replica(streaming(wire, then=slow_then_silent))
    gateway = await start_gateway(replica, traffic=TrafficConfig(timeouts=TimeoutConfig(stream_idle="300ms")))
    response = await gateway.post(stream=True)
    *events, last, _ = response.text.split("\n\n")
    assert len(events) == 9
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "replica_silent"
    await until(lambda: replica.num_open == 0)


async def test_the_time_before_the_first_byte_is_not_limited_by_the_idle_timeout(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def answer(_request: Any, writer: Any) -> None:
        await asyncio.sleep(0.3)
        writer.write(wire.plain(b"{}"))

    gateway = await start_gateway(await start_replica(answer), traffic=TrafficConfig(timeouts=TimeoutConfig(stream_idle="100ms")))
    assert (await gateway.post()).status_code == 200


@pytest.mark.parametrize("answer", ["begun", "none"])
async def test_a_request_that_takes_longer_than_it_may_ends(start_replica: Any, start_gateway: Any, wire: Any, until: Any, answer: str) -> None:
    async def wait(_request: Any, writer: Any) -> None:
        await forever(writer)

    replica = await start_replica(streaming(wire, then=forever) if answer == "begun" else wait)
    gateway = await start_gateway(replica, traffic=TrafficConfig(timeouts=TimeoutConfig(request="200ms")))
    response = await gateway.post(stream=True)
    assert response.status_code == (200 if answer == "begun" else 504)
    assert "request_timeout" in response.text
    await until(lambda: replica.num_open == 0)


async def test_a_client_that_reads_slowly_slows_its_replica_alone(start_replica: Any, start_gateway: Any, wire: Any, until: Any) -> None:
    sent = 0
    size = 64 * 1024 * 1024

    async def flood(writer: Any) -> None:
        nonlocal sent
        while sent < size:
            writer.write(wire.chunk(bytes(65536)))
            await writer.drain()
            sent += 65536
        writer.write(b"0\r\n\r\n")

    async def answer(request: Any, writer: Any) -> None:
        if b"stream" in request.body:
            writer.write(wire.plain(b"{}"))
        else:
            await streaming(wire, then=flood)(request, writer)

    gateway = await start_gateway(await start_replica(answer))
    reader, writer = await gateway.connect()
    writer.write(wire.post(b'{"model":"m"}', "Connection: close"))
    await reader.readuntil(ONE_EVENT)
    last, since = -1, time.monotonic()
    while time.monotonic() - since < 0.3:
        await asyncio.sleep(0.02)
        if sent != last:
            last, since = sent, time.monotonic()
    assert sent < size / 2
    assert (await gateway.post(stream=False)).status_code == 200
    while await reader.read(1 << 20):
        pass
    assert sent == size
    writer.close()


async def test_a_client_that_reads_nothing_is_left(start_replica: Any, start_gateway: Any, wire: Any, until: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_protocol, "STALL_SECONDS", 0.3)

    async def flood(writer: Any) -> None:
        while True:
            writer.write(wire.chunk(bytes(65536)))
            await writer.drain()

    replica = await start_replica(streaming(wire, then=flood))
    gateway = await start_gateway(replica)
    _, writer = await gateway.connect()
    writer.write(wire.post(b'{"model":"m"}'))
    await until(lambda: len(gateway.records) == 1 and replica.num_open == 0)
    assert gateway.num_in_flight == 0
    writer.transport.abort()


async def test_a_client_that_reads_slowly_is_not_left(start_replica: Any, start_gateway: Any, wire: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_protocol, "STALL_SECONDS", 0.25)

    async def flood(writer: Any) -> None:
        while True:
            writer.write(wire.chunk(bytes(65536)))
            await writer.drain()

    gateway = await start_gateway(await start_replica(streaming(wire, then=flood)))
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, ("127.0.0.1", gateway.port))
        await loop.sock_sendall(slow, wire.post(b'{"model":"m"}'))
        for _ in range(30):
            assert await loop.sock_recv(slow, 8192)
            await asyncio.sleep(0.02)
    assert [record.error for record in gateway.records] == []


async def test_what_is_in_flight_when_the_gateway_aborts_ends_with_an_error(start_replica: Any, start_gateway: Any, wire: Any, until: Any) -> None:
    async def answer(request: Any, writer: Any) -> None:
        await (forever(writer) if b"stream" in request.body else streaming(wire, then=forever)(request, writer))

    replica = await start_replica(answer)
    gateway = await start_gateway(replica)
    reader, writer = await gateway.connect()
    writer.write(wire.post(b'{"model":"m"}', "Connection: close"))
    await reader.readuntil(ONE_EVENT)
    plain = asyncio.create_task(gateway.post(stream=False))
    await until(lambda: len(replica.requests) == 2)
    await gateway.proxy.abort_all()
    assert b"gateway_stopping" in (rest := await reader.read()) and rest.endswith(b"0\r\n\r\n")
    assert (await plain).json()["error"]["code"] == "gateway_stopping"
    writer.close()


async def test_a_client_that_leaves_behind_a_request_sent_ahead_ends_its_stream_at_the_replica(
    start_replica: Any, start_gateway: Any, wire: Any, until: Any
) -> None:
    replica = await start_replica(streaming(wire, then=forever))
    gateway = await start_gateway(replica)
    reader, writer = await gateway.connect()
    writer.write(wire.post(b'{"model":"m","stream":true}'))
    await reader.readuntil(ONE_EVENT)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: gateway\r\n\r\n")
    await writer.drain()
    await asyncio.sleep(0.02)
    writer.transport.abort()
    await until(lambda: gateway.num_in_flight == 0 and replica.num_open == 0)
    assert gateway.records[-1].error == "client_disconnected"
