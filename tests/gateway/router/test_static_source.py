"""StaticSource: fixed addresses, ready while /readyz says so; and how a flag names them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stoker_engine.errors import ConfigError
from stoker_gateway.router import replica_probe, static_source
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.fleet_view import Address
from stoker_gateway.router.replica_probe import probe
from stoker_gateway.router.static_model import StaticModel, parse_static_models
from stoker_gateway.router.static_source import StaticSource


@asynccontextmanager
async def running(source: StaticSource) -> AsyncIterator[Fleet]:
    fleet, is_told = Fleet(), asyncio.Event()
    fleet.listeners.append(lambda _: is_told.set())
    task = asyncio.create_task(source.run(fleet.update))
    try:
        async with asyncio.timeout(20):
            await is_told.wait()
        yield fleet
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


READY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
NOT_READY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_source, "POLL_SECONDS", 0.01)


async def test_a_replica_is_ready_while_its_readyz_says_so(replica: Any, until: Any) -> None:
    async with replica(NOT_READY) as first, replica(READY) as second:
        models = parse_static_models([f"m=127.0.0.1:{first.port},127.0.0.1:{second.port}"])
        async with running(StaticSource(models)) as fleet:
            model = fleet.find("m")
            assert model is not None and model.view.replicas == 2
            assert [endpoint.is_ready for endpoint in model.endpoints] == [False, True]
            first.answer, second.answer = READY, NOT_READY
            await until(lambda: [endpoint.is_ready for endpoint in model.endpoints] == [True, False])


async def test_a_replica_that_is_silent_is_not_ready_and_holds_up_no_other(replica: Any, until: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_probe, "PROBE_SECONDS", 0.1)
    async with replica(READY) as silent, replica(READY) as other:
        models = parse_static_models([f"a=127.0.0.1:{silent.port}", f"b=127.0.0.1:{other.port}"])
        async with running(StaticSource(models)) as fleet:
            a, b = fleet.find("a"), fleet.find("b")
            assert a is not None and b is not None and a.endpoints[0].is_ready
            silent.answer = b""
            await until(lambda: not a.endpoints[0].is_ready)
            assert b.endpoints[0].is_ready
            silent.answer = READY
            await until(lambda: a.endpoints[0].is_ready)


async def test_a_source_without_replicas_tells_so_and_goes_on() -> None:
    async with running(StaticSource((StaticModel(name="m"),))) as fleet:
        model = fleet.find("default/m")
        assert model is not None and model.endpoints == []


@pytest.mark.parametrize(
    "answer",
    [
        *(b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b" " * 200_000),
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nrest",
    ],
)
async def test_a_probe_that_reads_nothing_whole_has_no_answer(replica: Any, answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_probe, "PROBE_SECONDS", 0.1)
    async with replica(answer) as one:
        assert await probe(Address("127.0.0.1", one.port), "/readyz") is None


async def test_a_probe_of_nobody_has_no_answer(replica: Any) -> None:
    async with replica(READY) as one:
        port = one.port
    assert await probe(Address("127.0.0.1", port), "/readyz") is None


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "a..b", "\x00"])
async def test_a_probe_of_a_name_that_is_none_has_no_answer(host: str) -> None:
    assert await probe(Address(host, 1), "/readyz") is None


async def test_what_one_replica_sends_costs_the_others_nothing(replica: Any, until: Any) -> None:
    switching = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    async with replica(READY) as odd, replica(NOT_READY) as other:
        models = parse_static_models([f"a=127.0.0.1:{odd.port}", f"b=127.0.0.1:{other.port}", f"c={'c' * 64}.example:1"])
        async with running(StaticSource(models)) as fleet:
            a, b = fleet.find("a"), fleet.find("b")
            assert a is not None and b is not None
            odd.answer = switching
            await until(lambda: not a.endpoints[0].is_ready)
            other.answer = READY
            await until(lambda: b.endpoints[0].is_ready)


def test_a_flag_names_a_model_and_its_endpoints() -> None:
    plain, full, empty = parse_static_models(
        [
            "org/m=127.0.0.1:8001,[::1]:8002,127.0.0.1:8001",
            '{"name": "b", "namespace": "n", "servedName": "x", "aliases": ["y"], "traffic": {"loadBalancing": "RoundRobin"}, "endpoints": ["h:1"]}',
            "idle=",
        ]
    )
    assert plain.addresses == (Address("127.0.0.1", 8001), Address("::1", 8002))
    assert full.addresses == (Address("h", 1),) and full.traffic.load_balancing == "RoundRobin" and full.served_name == "x"
    assert empty.addresses == ()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["m"], "no '='"),
        (["m=8000"], "'8000' is no endpoint"),
        (["m=h:0"], "'h:0' is no endpoint"),
        (["m=h:65536"], "'h:65536' is no endpoint"),
        (["m=http://127.0.0.1:8000"], "'http://127.0.0.1:8000' is no endpoint; write host:port, without http://"),
        (["m=h/v1:8000"], "'h/v1:8000' is no endpoint"),
        (["m=a b:8000"], "'a b:8000' is no endpoint"),
        (["=h:1"], "name"),
        (["{"], "'{'"),
        (['{"name": "m", "endpoint": []}'], "endpoint"),
        (["m=h:1", "m=h:2"], "two of default/m"),
    ],
)
def test_a_flag_that_is_wrong_is_named_with_what_is_allowed(values: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=r"^--static-model: ") as raised:
        parse_static_models(values)
    assert words in str(raised.value)
