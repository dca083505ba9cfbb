import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from stoker_operator.pod_reports import LIMIT_SECONDS, MAX_BODY_BYTES, UNKNOWN, PodReporter

STARTUP = '{"phase":"downloading","progress":0.5,"since":"2026-01-01T00:00:00+00:00","seconds":3,"message":"","bytes":5,"bytesPerSecond":2}'
READINESS = '{"status":"not ready","engine":"loading","reason":"the engine is loading"}'
LOAD = '{"inFlight":3,"running":2,"waiting":1,"draining":false,"kvCacheUsage":0.25,"server_load":3}'


@asynccontextmanager
async def serving(answers: dict[str, str | None]) -> AsyncIterator[PodReporter]:
    """An HTTP server of the given bodies by path; None never answers."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        body = answers.get(path, "")
        if body is None:
            await reader.read()
        else:
            writer.write(f"HTTP/1.1 503 Not Ready\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server, httpx.AsyncClient() as client:
        yield PodReporter(client, server.sockets[0].getsockname()[1])


async def test_a_pod_tells_how_far_it_is_why_it_is_not_ready_and_its_load() -> None:
    async with serving({"/startupz": STARTUP, "/readyz": READINESS, "/load": LOAD}) as reporter:
        report = await reporter.ask("127.0.0.1")
    assert report.startup is not None and (report.startup.phase, report.startup.progress) == ("downloading", 0.5)
    assert (report.startup.bytes, report.startup.bytes_per_second, report.startup.eta_seconds) == (5, 2, None)
    assert report.readiness is not None and report.readiness.engine == "loading"
    assert report.load is not None and report.load.kv_cache_usage == 0.25 and report.num_in_flight == 3


@pytest.mark.parametrize("body", ["", "[]", '{"phase":1}', "<html>", '{"phase":"x","progress":7}', '{"phase":"' + "x" * MAX_BODY_BYTES + '"}'])
async def test_nonsense_is_not_known(body: str) -> None:
    async with serving(dict.fromkeys(("/startupz", "/readyz", "/load"), body)) as reporter:
        assert await reporter.ask("127.0.0.1") == UNKNOWN


async def test_a_pod_without_an_address_or_a_listener_is_not_known() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    async with httpx.AsyncClient() as client:
        reporter = PodReporter(client, port)
        assert [await reporter.ask(address) for address in ("", "127.0.0.1", "::1", "not an address")] == [UNKNOWN] * 4
    assert UNKNOWN.num_in_flight == 0


async def test_a_pod_that_never_answers_costs_the_limit_and_the_rest_is_known() -> None:
    async with serving({"/startupz": None, "/readyz": READINESS, "/load": None}) as reporter:
        report = await asyncio.wait_for(reporter.ask("127.0.0.1"), 5 * LIMIT_SECONDS)
    assert (report.startup, report.load) == (None, None) and report.readiness is not None
