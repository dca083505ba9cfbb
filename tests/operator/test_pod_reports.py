import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stoker_operator.names import HTTP_PORT
from stoker_operator.pod_reports import AT_ONCE, LIMIT_SECONDS, MAX_BODY_BYTES, UNKNOWN, PodReporter, pod_client

STARTUP = '{"phase":"downloading","progress":0.5,"since":"2026-01-01T00:00:00+00:00","seconds":3,"message":"","bytes":5,"bytesPerSecond":2}'
READINESS = '{"status":"not ready","engine":"loading","reason":"the engine is loading"}'
LOAD = '{"inFlight":3,"running":2,"waiting":1,"draining":false,"kvCacheUsage":0.25,"server_load":3}'


def _address() -> str:
    """Of this machine, and probably nobody's: pods are asked at one port, whatever their address."""
    return f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}"


@asynccontextmanager
async def serving(answers: dict[str, str | None], asked: list[str] | None = None) -> AsyncIterator[str]:
    """The address of an HTTP server of the given bodies by path; None never answers. Paths go to `asked`."""
    address = _address()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        if asked is not None:
            asked.append(path)
        body = answers.get(path, "")
        if body is None:
            await reader.read()
        else:
            writer.write(f"HTTP/1.1 503 Not Ready\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(handle, address, HTTP_PORT):
        yield address


@pytest.fixture
async def reporter() -> AsyncIterator[PodReporter]:
    async with pod_client() as client:
        yield PodReporter(client)


async def test_a_pod_tells_how_far_it_is_why_it_is_not_ready_and_its_load(reporter: PodReporter) -> None:
    async with serving({"/startupz": STARTUP, "/readyz": READINESS, "/load": LOAD}) as address:
        report = await reporter.ask(address)
    assert report.startup is not None and (report.startup.phase, report.startup.progress) == ("downloading", 0.5)
    assert (report.startup.bytes, report.startup.bytes_per_second, report.startup.eta_seconds) == (5, 2, None)
    assert report.readiness is not None and report.readiness.engine == "loading"
    assert report.load is not None and report.load.kv_cache_usage == 0.25 and report.num_in_flight == 3


@pytest.mark.parametrize(
    "body", ["", "[]", '{"phase":1}', "<html>", '{"phase":"x","progress":7}', '{"phase":"' + "x" * MAX_BODY_BYTES + '"}', '{"x":' + "[" * 60_000]
)
async def test_nonsense_is_not_known(reporter: PodReporter, body: str) -> None:
    async with serving(dict.fromkeys(("/startupz", "/readyz", "/load"), body)) as address:
        assert await reporter.ask(address) == UNKNOWN


async def test_a_pod_without_an_address_or_a_listener_is_not_known(reporter: PodReporter) -> None:
    assert [await reporter.ask(address) for address in ("", _address(), "::1", "not an address")] == [UNKNOWN] * 4
    assert UNKNOWN.num_in_flight == 0


async def test_a_pod_that_never_answers_costs_the_limit_and_the_rest_is_known(reporter: PodReporter) -> None:
    async with serving({"/startupz": None, "/readyz": READINESS, "/load": None}) as address:
        report = await asyncio.wait_for(reporter.ask(address), 5 * LIMIT_SECONDS)
    assert (report.startup, report.load) == (None, None) and report.readiness is not None


async def test_a_pod_that_says_nothing_of_its_readiness_is_asked_nothing_else(reporter: PodReporter) -> None:
    asked: list[str] = []
    async with serving({"/startupz": STARTUP, "/readyz": "", "/load": LOAD}, asked) as address:
        assert await reporter.ask(address) == UNKNOWN
    assert asked == ["/readyz"]


async def test_many_silent_pods_of_one_keep_nobody_from_asking_others(reporter: PodReporter) -> None:
    asked: list[str] = []
    async with serving({"/readyz": None}, asked) as silent, serving({"/readyz": READINESS, "/startupz": STARTUP, "/load": LOAD}) as other:
        many = asyncio.create_task(reporter.ask_all({f"p{number}": silent for number in range(200)}))
        async with asyncio.timeout(10):
            while len(asked) < AT_ONCE:
                await asyncio.sleep(0)
        report = (await reporter.ask_all({"other": other}))["other"]
        assert report.load is not None and not many.done() and len(asked) == AT_ONCE
        many.cancel()
