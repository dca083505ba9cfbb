"""A gateway and replicas of a few lines, all in this process, over real sockets."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from stoker_engine.settings import to_args
from stoker_gateway.http.drain import Drain
from stoker_gateway.http.server import make_server
from stoker_gateway.router.admission.admission import Admission
from stoker_gateway.router.app import GatewayApp
from stoker_gateway.router.body_memory import BodyMemory
from stoker_gateway.router.client_protocol import ClientProtocol
from stoker_gateway.router.config import GatewayConfig
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.fleet_view import Address, DeploymentView, EndpointView
from stoker_gateway.router.gateway_metrics import GatewayMetrics
from stoker_gateway.router.lifecycle import Lifecycle
from stoker_gateway.router.proxy import Proxy
from stoker_gateway.router.routed_request import RoutedRequest
from stoker_gateway.router.traffic import TrafficConfig
from stoker_gateway.router.upstream_pools import UpstreamPools


@dataclass
class Request:
    """As a replica got it."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for header, value in self.headers if header.lower() == name), None)


Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


class Wire:
    """What goes over a connection, in bytes."""

    @staticmethod
    def head(status: str = "200 OK", **headers: str) -> bytes:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode()

    @staticmethod
    def plain(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
        return Wire.head(status, Content_Type="application/json", Content_Length=str(len(body)), **headers) + body

    @staticmethod
    def error(code: str, status: str = "503 Service Unavailable", **headers: str) -> bytes:
        return Wire.plain(json.dumps({"error": {"message": "no", "type": "server_error", "param": None, "code": code}}).encode(), status, **headers)

    @staticmethod
    def stream() -> bytes:
        return Wire.head(Content_Type="text/event-stream", Transfer_Encoding="chunked")

    @staticmethod
    def chunk(data: bytes) -> bytes:
        return b"%x\r\n%s\r\n" % (len(data), data)

    @staticmethod
    def post(body: bytes, *headers: str, path: str = "/v1/chat/completions") -> bytes:
        lines = "".join(f"{header}\r\n" for header in ("Host: gateway", f"Content-Length: {len(body)}", *headers))
        return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


async def hello(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(Wire.plain(b'{"hello": 1}'))


@pytest.fixture
def wire() -> type[Wire]:
    return Wire


@dataclass
class Replica:
    """Is ready, and answers each request by `answer`; one that raises ends the connection."""

    answer: Answer = hello
    requests: list[Request] = field(default_factory=list)
    num_connections: int = 0
    num_open: int = 0
    """Connections."""

    async def start(self, stack: AsyncExitStack) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        stack.push_async_callback(self._stop, server)
        self.server = server
        self.address = Address(*server.sockets[0].getsockname()[:2])
        self._writers: set[asyncio.StreamWriter] = set()

    async def _stop(self, server: asyncio.Server) -> None:
        server.close()
        self.end_connections()

    def end_connections(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        self.num_open += 1
        self._writers.add(writer)
        gone = asyncio.create_task(writer.wait_closed())
        gone.add_done_callback(lambda task: self._lost(writer, None if task.cancelled() else task.exception()))
        try:
            while True:
                request = await _read(reader)
                if request.line.startswith("GET /readyz "):
                    writer.write(Wire.plain(b"{}"))
                    continue
                self.requests.append(request)
                await self._answer(request, reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            writer.transport.abort()

    async def _answer(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Raises EOFError where the other end goes away meanwhile."""
        answering = asyncio.create_task(self.answer(request, writer))
        gone = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise EOFError
            await answering
            await writer.drain()
        finally:
            for task in (answering, gone):
                task.cancel()
            await asyncio.wait((answering, gone))

    def _lost(self, writer: asyncio.StreamWriter, _how: BaseException | None) -> None:
        self.num_open -= 1
        self._writers.discard(writer)


async def _read(reader: asyncio.StreamReader) -> Request:
    line, *rest = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    headers = [(name, value.strip()) for name, _, value in (header.partition(":") for header in rest)]
    request = Request(line, headers, b"")
    request.body = await reader.readexactly(int(request.header("content-length") or 0))
    return request


@dataclass
class Gateway:
    """With one model, `m`."""

    fleet: Fleet
    lifecycle: Lifecycle
    proxy: Proxy
    pools: UpstreamPools
    port: int
    client: httpx.AsyncClient
    records: list[RoutedRequest]
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def post(self, path: str = "/v1/chat/completions", **fields: Any) -> httpx.Response:
        return await self.client.post(path, json={"model": "m", **fields})

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return reader, writer

    async def send(self, data: bytes) -> bytes:
        """All that comes back until the connection ends."""
        reader, writer = await self.connect()
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(), timeout=30)
        finally:
            writer.close()

    @property
    def num_in_flight(self) -> int:
        return sum(endpoint.num_in_flight for model in self.fleet.models for endpoint in model.endpoints)


def view(addresses: list[Address], traffic: TrafficConfig) -> tuple[DeploymentView, ...]:
    endpoints = tuple(EndpointView(address, str(address), True) for address in addresses)
    return (DeploymentView("default", "m", "uid", 1, ("m", "m-alias"), len(endpoints), traffic, endpoints),)


StartReplica = Callable[..., Awaitable[Replica]]
StartGateway = Callable[..., Awaitable[Gateway]]

IN_TURN = TrafficConfig(load_balancing="RoundRobin")


@pytest.fixture
async def start_replica() -> AsyncIterator[StartReplica]:
    async with AsyncExitStack() as stack:

        async def start(answer: Answer = hello) -> Replica:
            replica = Replica(answer)
            await replica.start(stack)
            return replica

        yield start


@pytest.fixture
async def start_gateway() -> AsyncIterator[StartGateway]:
    """`start_gateway(*replicas or addresses, traffic=…)`: synced, with these endpoints, in turn."""
    async with AsyncExitStack() as stack:

        async def start(*replicas: Replica | Address, traffic: TrafficConfig = IN_TURN, max_body_bytes: int = 1 << 20, memory: int = 64 << 20) -> Gateway:
            lifecycle = Lifecycle(Drain(30.0), 0.0)
            fleet, pools, records = Fleet(), UpstreamPools(), list[RoutedRequest]()
            fleet.listeners.append(pools.forget)
            admission = Admission(None)
            metrics = GatewayMetrics(fleet, admission)
            fleet.listeners += [admission.on_fleet_change, metrics.on_fleet_change]
            proxy = Proxy(fleet, pools, lifecycle.drain, admission, BodyMemory(max_body_bytes, memory))
            app = GatewayApp(fleet, proxy, lifecycle, admission, metrics)
            app.observers += (records.append,)
            server = make_server(app, ClientProtocol)
            server.config.load()
            # Without the server's own loop, which would take a fifth of a second of each test.
            accepting = await asyncio.get_running_loop().create_server(lambda: ClientProtocol(server.config, server.server_state, {}), "127.0.0.1", 0)
            port = accepting.sockets[0].getsockname()[1]

            async def stop() -> None:
                accepting.close()
                pools.close()
                for connection in list(server.server_state.connections):
                    connection.transport.abort()
                for task in list(server.server_state.tasks):
                    await task

            stack.push_async_callback(stop)
            fleet.update(view([replica if isinstance(replica, Address) else replica.address for replica in replicas], traffic))
            client = await stack.enter_async_context(httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30.0, verify=False, trust_env=False))
            gateway = Gateway(fleet, lifecycle, proxy, pools, port, client, records)
            stack.callback(lambda: [writer.transport.abort() for writer in gateway.writers])
            return gateway

        yield start


@dataclass
class Process:
    """`stoker-gateway`, ready."""

    process: asyncio.subprocess.Process
    client: httpx.AsyncClient
    folder: Path

    @property
    def last_message(self) -> dict[str, Any]:
        return json.loads((self.folder / "termination.json").read_text())


StartProcess = Callable[..., Awaitable[Process]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[StartProcess]:
    processes: list[Process] = []

    async def start(replica: Any, **settings: Any) -> Process:
        path = str(tmp_path / "termination.json")
        models = (f"m={replica.address}",)
        config = GatewayConfig(static_models=models, host="127.0.0.1", port=0, termination_message_path=path, log_format="json", **settings)
        args = ("-m", "stoker_gateway.router", "--port=0", *to_args(config))
        log = tmp_path / "log"
        with log.open("wb") as stderr:  # no pipe: nobody reads it, and a full one stops its writer
            process = await asyncio.create_subprocess_exec(sys.executable, *args, stderr=stderr)
        while "serving on" not in log.read_text():
            assert process.returncode is None, log.read_text()
            await asyncio.sleep(0.01)
        url = json.loads(next(line for line in log.read_text().splitlines() if "serving on" in line))["message"].rpartition(" ")[2]
        processes.append(Process(process, httpx.AsyncClient(base_url=url, timeout=30.0, verify=False, trust_env=False), tmp_path))
        while (await processes[-1].client.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.01)
        return processes[-1]

    yield start
    for each in processes:
        await each.client.aclose()
        if each.process.returncode is None:
            each.process.kill()
        await each.process.wait()
