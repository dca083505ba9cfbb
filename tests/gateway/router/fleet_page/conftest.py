"""A gateway with its page in this process, over a real socket, and a fleet that tests change by hand."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from stoker_gateway.http.drain import Drain
from stoker_gateway.http.server import listen, make_server
from stoker_gateway.router.admission.admission import Admission
from stoker_gateway.router.admission.key_ring import KeyRing
from stoker_gateway.router.app import GatewayApp
from stoker_gateway.router.body_memory import BodyMemory
from stoker_gateway.router.client_protocol import ClientProtocol
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.fleet_page import feed as feed_module
from stoker_gateway.router.fleet_page.feed import FleetFeed
from stoker_gateway.router.fleet_page.page import FleetPage
from stoker_gateway.router.fleet_view import Address, DeploymentView, EndpointView
from stoker_gateway.router.gateway_metrics import GatewayMetrics
from stoker_gateway.router.lifecycle import Lifecycle
from stoker_gateway.router.proxy import Proxy
from stoker_gateway.router.traffic import TrafficConfig
from stoker_gateway.router.upstream_pools import UpstreamPools

Message = dict[str, Any]


def deployment(index: int, num_pods: int = 2, **fields: Any) -> DeploymentView:
    pods = tuple(EndpointView(Address(f"10.0.{index % 250}.{pod}", 8000), f"m{index}-{pod}", True) for pod in range(num_pods))
    return DeploymentView(
        **{
            "namespace": "default",
            "name": f"m{index}",
            "uid": f"uid-{index}",
            "created": index,
            "served_names": (f"m{index}",),
            "replicas": num_pods,
            "traffic": TrafficConfig(),
            "endpoints": pods,
            **fields,
        }
    )


@pytest.fixture(name="deployment")
def deployment_fixture() -> Callable[..., DeploymentView]:
    return deployment


@dataclass
class Gateway:
    fleet: Fleet
    feed: FleetFeed
    admission: Admission
    keys: KeyRing | None
    client: httpx.AsyncClient

    @asynccontextmanager
    async def watch(self, key: str = "") -> AsyncIterator[Callable[[], Awaitable[Message]]]:
        """Gives a function that returns the next message."""
        async with self.client.stream("GET", "/fleet/events", headers={"Authorization": f"Bearer {key}"} if key else {}) as response:
            assert response.status_code == 200 and response.headers["content-type"] == "text/event-stream; charset=utf-8"
            lines = response.aiter_lines()

            async def next_message() -> Message:
                async with asyncio.timeout(20):
                    while not (line := await anext(lines)).startswith("data:"):
                        continue
                    message: Message = json.loads(line[5:])
                    return message

            yield next_message


StartGateway = Callable[..., Awaitable[Gateway]]


@pytest.fixture
async def start_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StartGateway]:
    monkeypatch.setattr(feed_module, "TICK_SECONDS", 0.01)
    async with AsyncExitStack() as stack:

        async def start(*keys: str) -> Gateway:
            ring = None
            if keys:
                path = tmp_path / "keys.json"
                path.write_text(json.dumps({"keys": [{"name": key, "sha256": sha256(key.encode()).hexdigest()} for key in keys]}))
                ring = KeyRing(path)
            fleet, admission, lifecycle = Fleet(), Admission(ring), Lifecycle(Drain(1.0), 0.0)
            feed = FleetFeed(fleet, admission)
            proxy = Proxy(fleet, UpstreamPools(), lifecycle.drain, admission, BodyMemory(1 << 20, 64 << 20))
            app = GatewayApp(fleet, proxy, lifecycle, admission, GatewayMetrics(fleet, admission))
            app.add_page(FleetPage(feed, admission))
            listener = stack.enter_context(listen("127.0.0.1", 0))
            server = make_server(app, ClientProtocol)
            server.config.load()
            # Without the server's own loop, which would take a fifth of a second of each test.
            accepting = await asyncio.get_running_loop().create_server(lambda: ClientProtocol(server.config, server.server_state, {}), sock=listener)
            client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", trust_env=False, timeout=20)

            async def stop() -> None:
                await client.aclose()
                feed.close()
                accepting.close()
                await asyncio.gather(*server.server_state.tasks)

            stack.push_async_callback(stop)
            return Gateway(fleet, feed, admission, ring, client)

        yield start
