import asyncio
import os
import resource
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stoker_gateway.router.fleet_view import Address
from stoker_gateway.router.traffic import RetryConfig, TimeoutConfig, TrafficConfig


@pytest.fixture
def refusing_address() -> Iterator[Address]:
    """Nobody listens there."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield Address(*bound.getsockname())


@pytest.fixture
def silent_address() -> Iterator[Address]:
    """As a black hole: a connection is never answered, because the backlog is full."""
    with socket.socket() as listening, socket.socket() as first, socket.socket() as second:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for taking in (first, second):
            taking.setblocking(False)
            taking.connect_ex(listening.getsockname())
        yield Address(*listening.getsockname())


async def test_a_request_that_cannot_connect_is_answered_by_another_replica(start_replica: Any, start_gateway: Any, refusing_address: Address) -> None:
    replica = await start_replica()
    gateway = await start_gateway(refusing_address, replica)
    for _ in range(10):
        assert (await gateway.post()).status_code == 200
    assert len(replica.requests) == 10
    # One connection that failed is enough.
    assert sum(record.attempts for record in gateway.records) == 11


async def test_a_black_hole_costs_the_connect_timeout_once_and_others_nothing(start_replica: Any, start_gateway: Any, silent_address: Address) -> None:
    replica = await start_replica()
    traffic = TrafficConfig(load_balancing="RoundRobin", timeouts=TimeoutConfig(connect="500ms"))
    gateway = await start_gateway(silent_address, replica, traffic=traffic)
    responses = await asyncio.gather(*(gateway.post() for _ in range(20)))
    assert {response.status_code for response in responses} == {200}
    seconds = [record.seconds for record in gateway.records]
    assert sum(second > 0.45 for second in seconds) == sum(record.attempts == 2 for record in gateway.records) == 10
    before = len(gateway.records)
    assert (await gateway.post()).status_code == (await gateway.post()).status_code == 200
    assert [record.attempts for record in gateway.records[before:]] == [1, 1]


@pytest.mark.parametrize("code", ["draining", "engine_not_ready"])
async def test_a_replica_that_begins_nothing_is_passed_over(start_replica: Any, start_gateway: Any, wire: Any, code: str) -> None:
    async def refuse(_request: Any, writer: Any) -> None:
        writer.write(wire.error(code, Retry_After="1", Connection="close"))
        writer.close()

    refusing, serving = await start_replica(refuse), await start_replica()
    gateway = await start_gateway(refusing, serving)
    for _ in range(6):
        assert (await gateway.post()).content == b'{"hello": 1}'
    assert len(serving.requests) == 6
    assert len(refusing.requests) == 3


async def test_a_full_replica_is_passed_over_and_stays_in_the_turn(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def refuse(_request: Any, writer: Any) -> None:
        writer.write(wire.error("queue_full", "429 Too Many Requests", Retry_After="1"))

    full, serving = await start_replica(refuse), await start_replica()
    gateway = await start_gateway(full, serving)
    for _ in range(10):
        assert (await gateway.post()).status_code == 200
    assert len(full.requests) >= 5


async def test_what_all_replicas_refuse_is_answered_as_the_last_one_did(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def refuse(_request: Any, writer: Any) -> None:
        writer.write(wire.error("queue_full", "429 Too Many Requests", Retry_After="7"))

    gateway = await start_gateway(await start_replica(refuse), await start_replica(refuse))
    response = await gateway.post()
    assert (response.status_code, response.json()["error"]["code"], response.headers["retry-after"]) == (429, "queue_full", "7")
    assert gateway.records[-1].attempts == 2


async def test_a_replica_that_does_not_know_a_new_name_yet_is_passed_over(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def refuse(_request: Any, writer: Any) -> None:
        writer.write(wire.error("model_not_found", "404 Not Found"))

    gateway = await start_gateway(await start_replica(refuse), await start_replica())
    for _ in range(4):
        assert (await gateway.post()).status_code == 200
    gateway = await start_gateway(await start_replica(refuse), await start_replica(refuse))
    response = await gateway.post()
    assert (response.status_code, response.json()["error"]["code"]) == (503, "no_replicas"), "the model is known: never 404"
    assert int(response.headers["retry-after"]) > 0


async def test_what_else_a_replica_does_not_find_is_its_answer(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def refuse(_request: Any, writer: Any) -> None:
        writer.write(wire.error("unknown_url", "404 Not Found"))

    replicas = await start_replica(refuse), await start_replica(refuse)
    gateway = await start_gateway(*replicas)
    response = await gateway.post()
    assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_url")
    assert sum(len(replica.requests) for replica in replicas) == 1


@pytest.mark.parametrize("code", ["engine_dead", "nobody_knows"])
async def test_a_request_that_may_have_begun_is_not_sent_again(start_replica: Any, start_gateway: Any, wire: Any, code: str) -> None:
    async def fail(_request: Any, writer: Any) -> None:
        writer.write(wire.error(code, Retry_After="1"))

    replicas = await start_replica(fail), await start_replica(fail)
    gateway = await start_gateway(*replicas)
    response = await gateway.post()
    assert (response.status_code, response.json()["error"]["code"]) == (503, code)
    assert sum(len(replica.requests) for replica in replicas) == 1


async def test_a_replica_that_dies_with_a_request_does_not_take_others_with_it(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def die(_request: Any, writer: Any) -> None:
        writer.transport.abort()

    replicas = await start_replica(die), await start_replica(die)
    gateway = await start_gateway(*replicas)
    response = await gateway.post()
    assert (response.status_code, response.json()["error"]["code"]) == (502, "replica_failed")
    assert sum(len(replica.requests) for replica in replicas) == 1


async def test_an_idle_connection_that_ends_as_a_request_is_sent_over_it_costs_nothing(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def answer(_request: Any, writer: Any) -> None:
        if len(replica.requests) == 2:
            writer.transport.abort()
        else:
            writer.write(wire.plain(b"{}"))

    replica = await start_replica(answer)
    gateway = await start_gateway(replica)
    assert (await gateway.post()).status_code == (await gateway.post()).status_code == 200
    assert (len(replica.requests), replica.num_connections) == (3, 2)
    assert gateway.records[-1].attempts == 1


async def test_a_request_that_was_begun_over_a_kept_connection_is_not_sent_to_another_replica(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def answer(_request: Any, writer: Any) -> None:
        if len(dying.requests) == 1:
            writer.write(wire.plain(b"{}"))
        else:
            dying.server.close()
            writer.transport.abort()

    dying, other = await start_replica(answer), await start_replica()
    gateway = await start_gateway(dying, other)
    for _ in range(2):
        assert (await gateway.post()).status_code == 200
    assert sorted([(await gateway.post()).status_code, (await gateway.post()).status_code]) == [200, 502]
    assert (len(dying.requests), len(other.requests)) == (2, 2)


async def test_a_connection_over_which_a_request_is_still_sent_when_it_has_its_answer_is_not_kept(start_gateway: Any, wire: Any) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(wire.plain(b"{}"))
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1024)
    gateway = await start_gateway(Address(*server.sockets[0].getsockname()), max_body_bytes=1 << 25)
    assert (await gateway.post(prompt="x" * (1 << 24))).status_code == 200
    ((endpoint,),) = (model.endpoints for model in gateway.fleet.models)
    assert gateway.pools.of(endpoint).take_idle() is None
    server.close()
    for writer in writers:
        writer.transport.abort()


@pytest.fixture
def no_more_files() -> Iterator[Callable[[], None]]:
    """When called, until the end of the test."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def forbid() -> None:
        os.close(lowest := os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))

    yield forbid
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_that_the_gateway_has_no_files_left_costs_no_replica_its_name(start_replica: Any, start_gateway: Any, no_more_files: Any) -> None:
    gateway = await start_gateway(await start_replica(), await start_replica())
    await gateway.client.get("/livez")
    no_more_files()
    response = await gateway.post()
    assert (response.status_code, response.json()["error"]["code"], response.headers["retry-after"]) == (503, "gateway_full", "1")
    assert not any(endpoint.health.is_ejected(0.0) for model in gateway.fleet.models for endpoint in model.endpoints)


async def test_a_host_whose_name_is_none_is_passed_over(start_replica: Any, start_gateway: Any) -> None:
    gateway = await start_gateway(Address("x" * 64, 80), await start_replica())
    assert [(await gateway.post()).status_code for _ in range(2)] == [200, 200]


async def test_no_more_replicas_are_tried_than_attempts_say(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def refuse(_request: Any, writer: Any) -> None:
        writer.write(wire.error("draining", Retry_After="1"))

    replicas = [await start_replica(refuse) for _ in range(4)]
    gateway = await start_gateway(*replicas, traffic=TrafficConfig(load_balancing="RoundRobin", retry=RetryConfig(attempts=1)))
    assert (await gateway.post()).status_code == 503
    assert sum(len(replica.requests) for replica in replicas) == 2


async def test_replicas_that_cannot_be_reached_are_a_503_with_retry_after(start_gateway: Any, refusing_address: Address) -> None:
    gateway = await start_gateway(refusing_address)
    response = await gateway.post()
    assert (response.status_code, response.json()["error"]["code"], response.headers["retry-after"]) == (503, "replicas_unreachable", "1")


async def test_connections_are_kept_and_those_to_a_replica_that_is_gone_are_closed(start_replica: Any, start_gateway: Any, until: Any) -> None:
    replica = await start_replica()
    gateway = await start_gateway(replica)
    for _ in range(5):
        await gateway.post()
    assert (replica.num_connections, replica.num_open) == (1, 1)
    gateway.fleet.update(())
    await until(lambda: replica.num_open == 0)
