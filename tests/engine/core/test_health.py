import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from stoker_engine.config import EngineConfig, LifecycleConfig
from stoker_engine.core.engine_link import EngineLink
from stoker_engine.core.health import MAX_CONNECTIONS, EngineHealth
from stoker_engine.exit_codes import ExitCode
from stoker_engine.frontend.clients.async_mp import AsyncMPClient
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.protocol import EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.testing import FakeEngineCore, Script, fake_engine_config

WaitUntil = Callable[..., Awaitable[None]]


@pytest.fixture
def config(socket_dir: str) -> EngineConfig:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    return msgspec.structs.replace(fake_engine_config(socket_dir), health_host="127.0.0.1", health_port=port)


@pytest.fixture
async def client(socket_dir: str) -> AsyncIterator[AsyncMPClient]:
    client = AsyncMPClient(ClientConfig(socket_dir))
    yield client
    await client.shutdown()


@pytest.fixture
async def http(config: EngineConfig) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.AsyncHTTPTransport(retries=8)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{config.health_port}", transport=transport, timeout=5.0) as http:
        yield http


@pytest.fixture
def link(socket_dir: str) -> Iterator[EngineLink]:
    link = EngineLink(hanging_after(socket_dir, "100ms"))
    yield link
    link.close()


def hanging_after(socket_dir: str, timeout: str) -> EngineConfig:
    return msgspec.structs.replace(fake_engine_config(socket_dir), lifecycle=LifecycleConfig(engine_hang_timeout=timeout))


def request(request_id: str, max_tokens: int) -> EngineCoreRequest:
    return EngineCoreRequest(request_id, [1, 2, 3], SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True), 0.0)


async def statuses(http: httpx.AsyncClient, *paths: str) -> list[int]:
    return [(await http.get(path)).status_code for path in paths]


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True


async def metric(http: httpx.AsyncClient, name: str, **labels: str) -> float:
    families = text_string_to_metric_families((await http.get("/metrics")).text)
    return next(sample.value for family in families for sample in family.samples if sample.name == name and sample.labels == labels)


async def wait_for_metric(http: httpx.AsyncClient, name: str, value: float) -> None:
    async with asyncio.timeout(10):
        while await metric(http, name) != value:
            await asyncio.sleep(0.01)


@pytest.mark.case("C078")
async def test_an_engine_that_loads_is_alive_and_not_ready_and_tells_its_progress(config: EngineConfig, http: httpx.AsyncClient) -> None:
    with FakeEngineCore(config, Script(load_seconds=60)):
        async with asyncio.timeout(10):
            while not 0 < (report := (await http.get("/startupz")).json())["progress"] < 1:
                await asyncio.sleep(0.01)
        assert report["phase"] == "loading" and report["since"].startswith("20")
        assert await statuses(http, "/livez", "/readyz", "/health", "/startupz", "/metrics") == [200, 503, 503, 503, 200]
        assert (await http.get("/readyz")).json()["reason"] == "the engine is loading"
        assert await metric(http, "stoker_engine_phase", phase="loading") == 1


async def test_an_engine_is_ready_while_an_api_is_connected(config: EngineConfig, http: httpx.AsyncClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(config, Script()):
        async with asyncio.timeout(10):
            while (await http.get("/startupz")).status_code != 200:
                await asyncio.sleep(0.01)
        assert (await http.get("/readyz")).json() == {"status": "unavailable", "reason": "no api is connected"}
        client = AsyncMPClient(ClientConfig(config.socket_dir))
        await wait_until(lambda: client.is_ready)
        assert await statuses(http, "/livez", "/readyz", "/health", "/startupz") == [200] * 4
        assert await metric(http, "stoker_engine_client_connected") == 1
        await client.shutdown()
        await wait_for_metric(http, "stoker_engine_client_connected", 0)
        assert await statuses(http, "/livez", "/readyz") == [200, 503]


async def test_a_draining_engine_is_alive_and_not_ready(config: EngineConfig, http: httpx.AsyncClient, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(config, Script(step_seconds=0.02)) as engine:
        await wait_until(lambda: client.is_ready)
        await client.add_request(request("a", 5000))
        await client.get_output()
        engine.process.terminate()
        await wait_until(lambda: client.status.is_draining)
        assert await statuses(http, "/livez", "/readyz", "/startupz") == [200, 503, 200]


@pytest.mark.fault("B8")
@pytest.mark.case("C068")
async def test_probes_and_metrics_are_answered_while_a_step_holds_the_main_thread(
    config: EngineConfig, http: httpx.AsyncClient, client: AsyncMPClient, wait_until: WaitUntil
) -> None:
    with FakeEngineCore(config, Script(hang_at_step=2)):
        await wait_until(lambda: client.is_ready)
        await client.add_request(request("a", 10))
        await client.get_output()
        assert await statuses(http, "/livez", "/readyz", "/metrics") == [200] * 3
        assert await metric(http, "stoker_engine_step_age_seconds") > 0
        assert await metric(http, "stoker_engine_num_requests_running") == 1


@pytest.mark.property("P68")
async def test_the_numbers_follow_the_requests(config: EngineConfig, http: httpx.AsyncClient, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(config, Script(step_seconds=0.002)):
        await wait_until(lambda: client.is_ready)
        blocks = client.status.ready.num_blocks - 1  # one is never used
        await wait_for_metric(http, "stoker_engine_kv_cache_blocks", blocks)
        for request_id in ("a", "b"):
            await client.add_request(request(request_id, 8000))
            await client.get_output()
        assert await metric(http, "stoker_engine_kv_cache_usage_ratio") > 0
        await wait_for_metric(http, "stoker_engine_num_requests_running", 2)
        await client.abort_requests(["a", "b"])
        for name in ("num_requests_running", "kv_cache_usage_ratio"):
            await wait_for_metric(http, f"stoker_engine_{name}", 0)
        await wait_for_metric(http, "stoker_engine_requests_aborted_total", 2)
        assert await metric(http, "stoker_engine_steps_total") > 0


async def test_connections_that_say_nothing_keep_no_probe_out(config: EngineConfig, http: httpx.AsyncClient) -> None:
    with FakeEngineCore(config, Script()):
        assert (await http.get("/livez")).status_code == 200
        silent = [socket.create_connection(("127.0.0.1", config.health_port or 0)) for _ in range(2 * MAX_CONNECTIONS)]
        for connection in silent:
            connection.sendall(b"GET /liv")
        assert await statuses(http, *["/livez"] * 20) == [200] * 20
        silent[0].settimeout(10)
        assert silent[0].recv(1) == b"", "the oldest is closed"
        for connection in silent:
            connection.close()


async def test_a_burst_of_connections_leaves_no_more_open_than_there_may_be(config: EngineConfig, http: httpx.AsyncClient) -> None:
    with FakeEngineCore(config, Script()):
        assert (await http.get("/livez")).status_code == 200
        silent = [socket.create_connection(("127.0.0.1", config.health_port or 0)) for _ in range(5 * MAX_CONNECTIONS)]
        assert (await http.get("/livez")).status_code == 200, "which the server accepts after them"
        assert sum(is_open(connection) for connection in silent) < MAX_CONNECTIONS
        for connection in silent:
            connection.close()


async def test_a_head_has_the_headers_of_a_get_and_an_unknown_path_is_not_found(config: EngineConfig, http: httpx.AsyncClient) -> None:
    with FakeEngineCore(config, Script()):
        got, headed = await http.get("/livez"), await http.head("/livez")
        assert (headed.status_code, headed.content, headed.headers["content-length"]) == (200, b"", str(len(got.content)))
        assert (await http.get("/v1/models")).status_code == 404
        assert (await http.post("/livez")).status_code == 501


async def test_the_log_says_where_the_probes_are(config: EngineConfig, http: httpx.AsyncClient, capfd: pytest.CaptureFixture[str]) -> None:
    with FakeEngineCore(msgspec.structs.replace(config, log_level="info"), Script()):
        assert await statuses(http, "/livez") == [200]
        assert f"probes and metrics on http://127.0.0.1:{config.health_port}\n" in capfd.readouterr().err


async def test_a_port_in_use_is_a_bad_configuration_that_is_named(config: EngineConfig) -> None:
    with socket.create_server(("127.0.0.1", config.health_port or 0)), FakeEngineCore(config, Script()) as engine:
        assert await asyncio.to_thread(engine.process.wait, 30) == ExitCode.BAD_CONFIG
    message = msgspec.json.decode(Path(config.termination_message_path).read_bytes())
    assert message["lastError"] == f"--health-port: cannot listen on 127.0.0.1:{config.health_port}: Address already in use"


@pytest.mark.fault("B7")
@pytest.mark.case("C067")
async def test_a_step_or_a_loop_that_hangs_is_not_alive(socket_dir: str, link: EngineLink, wait_until: WaitUntil) -> None:
    health = EngineHealth(hanging_after(socket_dir, "100ms"), link)

    def livez() -> tuple[int, Any]:
        status, _, body = health.answer("/livez")
        return status, msgspec.json.decode(body).get("reason")

    assert livez()[0] == 200
    link.pulse.turn()
    await wait_until(lambda: livez()[0] == 503)
    assert livez()[1].startswith("the loop has not turned for")
    link.pulse.step_begins(1)
    await wait_until(lambda: str(livez()[1]).startswith("a step has been running for"))
    link.pulse.step_ended(0)
    link.pulse.idle()
    assert livez()[0] == 200
