"""What the gateway asks replicas apart from requests: whether an ejected one is ready, and how busy they are."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stoker_gateway.router import health_record, load_poll, readmission, replica_probe
from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.fleet_view import Address, DeploymentView, EndpointView
from stoker_gateway.router.health_record import EJECT_AFTER, HealthRecord
from stoker_gateway.router.load_poll import LoadPoll
from stoker_gateway.router.readmission import CHECK_SECONDS, readmit_replicas
from stoker_gateway.router.replica_load import MAX_RATE_SECONDS, ReplicaLoad, tokens_per_second
from stoker_gateway.router.traffic import TrafficConfig


def answer(status: int, body: bytes = b"{}") -> bytes:
    return f"HTTP/1.1 {status} Status\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def fleet_of(*ports: int) -> tuple[Fleet, list[Endpoint]]:
    fleet = Fleet()
    endpoints = tuple(EndpointView(Address("127.0.0.1", port), f"pod-{port}", is_ready=True) for port in ports)
    fleet.update((DeploymentView("default", "m", "uid", 0, ("m",), len(ports), TrafficConfig(), endpoints),))
    return fleet, fleet.models[0].endpoints


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readmission, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(load_poll, "POLL_SECONDS", 0.01)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_failures_in_a_row_eject_for_longer_each_time_and_never_for_ever() -> None:
    health, time = HealthRecord(), 100.0
    lasted = []
    for _ in range(2000):
        while not health.is_ejected(time):
            health.failed(time)
        lasted.append(health.ejected_until - time)
        time = health.ejected_until
    assert lasted[:6] == [4.0, 8.0, 16.0, 32.0, 32.0, 32.0] and max(lasted) == 32.0


def test_requests_that_fail_together_eject_once() -> None:
    health = HealthRecord()
    for _ in range(50):
        health.failed(10.0)
    assert health.ejected_until == 14.0 and health.num_ejections == 1


def test_one_connection_that_fails_is_enough() -> None:
    fleet, (endpoint, other) = fleet_of(1, 2)
    fleet.unreachable(endpoint, "no connection", 10.0)
    assert endpoint.health.is_ejected(13.9) and not endpoint.health.is_ejected(14.0) and not other.health.is_ejected(10.0)


def test_a_success_forgets_the_failures_before_it() -> None:
    health = HealthRecord()
    for _ in range(EJECT_AFTER - 1):
        health.failed(0.0)
    health.succeeded()
    health.failed(0.0)
    assert not health.is_ejected(0.0)


def test_after_readmission_one_failure_ejects_again() -> None:
    health = HealthRecord()
    for _ in range(EJECT_AFTER):
        health.failed(1.0)
    health.readmit()
    assert not health.is_ejected(1.0)
    health.failed(1.0)
    assert health.ejected_until == 9.0


async def test_an_ejected_replica_gets_requests_again_once_it_says_that_it_is_ready(replica: Any, until: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_record, "FIRST_SECONDS", 2.9)
    monkeypatch.setattr(health_record, "POSTPONE_SECONDS", 2.9)
    async with replica(answer(503)) as ill, replica(answer(200)) as well:
        fleet, (endpoint, other) = fleet_of(ill.port, well.port)
        for _ in range(EJECT_AFTER):
            endpoint.health.failed(now())
        ejected_until = endpoint.health.ejected_until
        async with running(readmit_replicas(fleet)):
            await until(lambda: ill.num_requests >= 3)
            assert endpoint.health.ejected_until > ejected_until, "it is asked before its time is over, and stays away while it says no"
            ill.answer = answer(200)
            await until(lambda: not endpoint.health.is_ejected(now()))
            asked = ill.num_requests
            await asyncio.sleep(0.05)
            assert ill.num_requests == asked and well.num_requests == 0, "only who is ejected is asked"
            assert not other.health.is_ejected(now())


def test_an_ejection_outlasts_the_answer_to_whether_the_replica_is_ready() -> None:
    longest = CHECK_SECONDS + replica_probe.PROBE_SECONDS
    assert longest < min(health_record.CHECK_AHEAD_SECONDS, health_record.FIRST_SECONDS)
    assert health_record.POSTPONE_SECONDS - health_record.CHECK_AHEAD_SECONDS + longest < health_record.POSTPONE_SECONDS


async def test_a_replica_that_is_ejected_for_long_is_not_asked_yet(replica: Any) -> None:
    async with replica(answer(200)) as one:
        fleet, (endpoint,) = fleet_of(one.port)
        endpoint.health.ejected_until = now() + 30.0
        async with running(readmit_replicas(fleet)):
            await asyncio.sleep(0.05)
        assert one.num_requests == 0 and endpoint.health.is_ejected(now())


async def test_replicas_tell_their_load_while_their_model_has_traffic(replica: Any, until: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = answer(200, b'{"inFlight": 9, "running": 7, "waiting": 2, "kvCacheUsage": 0.5, "draining": false, "server_load": 9}')
    async with replica(busy) as first, replica(answer(200, b'{"running": -1}')) as second:
        fleet, (one, two) = fleet_of(first.port, second.port)
        async with running(LoadPoll(fleet).run()):
            await asyncio.sleep(0.05)
            assert first.num_requests == 0, "nobody is asked without need"
            one.num_in_flight = 1
            await until(lambda: one.load is not None and second.num_requests > 0)
            assert one.load is not None and (one.load.running, one.load.waiting, one.load.kv_cache_usage) == (7, 2, 0.5)
            assert one.num_requests(now()) == 9 and two.load is None and two.num_requests(now()) == 0
            monkeypatch.setattr(load_poll, "ACTIVE_SECONDS", 0.0)
            one.num_in_flight = 0
            await asyncio.sleep(0.05)
            asked = first.num_requests
            await asyncio.sleep(0.05)
            assert first.num_requests == asked


async def test_many_replicas_are_asked_in_turn(replica: Any, until: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_poll, "MAX_POLLS", 1)
    async with replica(b"") as silent, replica(answer(200, b'{"running": 1, "waiting": 0}')) as other:
        fleet, (one, two) = fleet_of(silent.port, other.port)
        one.num_in_flight = 1
        async with running(LoadPoll(fleet).run()):
            await until(lambda: two.load is not None and other.num_requests >= 3)
            assert silent.num_requests == 1, "who does not answer is not asked twice at a time"


def test_tokens_per_second_come_from_two_answers_of_one_process() -> None:
    before = ReplicaLoad(10.0, running=1, waiting=0, kv_cache_usage=0.1, generation_tokens=100)
    assert tokens_per_second(before, 12.0, 150) == 25.0
    assert tokens_per_second(before, 12.0, 100) == 0.0
    nothing = [(None, 12.0, 150), (before, 12.0, 20), (before, 12.0, None), (before, 10.0, 150), (before, 10.1 + MAX_RATE_SECONDS, 150)]
    assert [tokens_per_second(*each) for each in nothing] == [None] * 5


async def test_a_replica_that_counts_its_tokens_has_a_rate(replica: Any, until: Any) -> None:
    async with replica(answer(200, b'{"running": 1, "waiting": 0, "generationTokens": 10}')) as one:
        fleet, (endpoint,) = fleet_of(one.port)
        endpoint.num_in_flight = 1
        async with running(LoadPoll(fleet).run()):
            await until(lambda: endpoint.load is not None)
            one.answer = answer(200, b'{"running": 1, "waiting": 0, "generationTokens": 5000}')
            await until(lambda: endpoint.load is not None and (endpoint.load.tokens_per_second or 0) > 0)


@pytest.mark.parametrize(
    "odd", [b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", answer(200, b'{"running": 1%s, "waiting": 0}' % (b"0" * 400))]
)
async def test_an_odd_answer_of_one_replica_does_not_end_the_polls(replica: Any, until: Any, odd: bytes) -> None:
    async with replica(odd) as strange, replica(answer(200, b'{"running": 1, "waiting": 0}')) as other:
        fleet, (one, two) = fleet_of(strange.port, other.port)
        one.num_in_flight = 1
        async with running(LoadPoll(fleet).run()):
            await until(lambda: strange.num_requests >= 2 and two.load is not None)
        assert one.load is None
