"""A burst for a model that a cluster has scaled to zero."""

import asyncio
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

NUM_ASKED, BOUND = 500, 256
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENTS = b"data: 1\n\ndata: [DONE]\n\n"
BODY = b'{"model":"m","stream":true}'
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


@dataclass
class Replica:
    """Each answer takes a second."""

    arrivals: list[float] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if head.startswith(b"GET"):
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                continue
            await reader.readexactly(len(BODY))
            self.arrivals.append(time.monotonic())
            await asyncio.sleep(1)
            writer.write(HEAD + b"%x\r\n%s\r\n0\r\n\r\n" % (len(EVENTS), EVENTS))


@dataclass
class Client:
    data: bytes = b""
    is_done: bool = False

    async def ask(self, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        while piece := await reader.read(65536):
            self.data += piece
        self.is_done = True
        writer.close()


@pytest.mark.stress
@pytest.mark.case("C102")
async def test_a_burst_for_a_model_at_zero_replicas_is_held_up_to_the_bound_and_let_go_gradually(
    api_server: Any, start_gateway: Any, serve: Any, capsys: pytest.CaptureFixture[str], until: Callable[..., Any]
) -> None:
    metadata = {"name": "m", "namespace": "default", "uid": "uid", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    await api_server.put("inferencedeployments", {"metadata": metadata, "spec": {"model": {"uri": "file:///m"}, "replicas": 0}})
    gateway = start_gateway()
    replica, listener = Replica(), socket.create_server(("127.0.0.1", 0), backlog=512)
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False) as http, serve(listener, replica.serve):
        async with asyncio.timeout(30):
            ready = False
            while not ready:
                await asyncio.sleep(0.05)
                with suppress(httpx.TransportError):
                    ready = (await http.get("/readyz")).status_code == 200
        clients = [Client() for _ in range(NUM_ASKED)]
        begin = time.monotonic()
        asking = [asyncio.create_task(client.ask(gateway.port)) for client in clients]
        await until(lambda: sum(client.is_done for client in clients) == NUM_ASKED - BOUND)
        refused_seconds = time.monotonic() - begin
        held = [client for client in clients if not client.is_done]
        refused = [client.data.lower() for client in clients if client.is_done]
        assert all(data.startswith(b"http/1.1 503 ") and b"retry-after: 1\r\n" in data for data in refused)
        await until(lambda: all(b": waiting\n\n" in client.data for client in held))
        assert sum(client.is_done for client in clients) == NUM_ASKED - BOUND
        labels = {"stoker.dev/inference-deployment": "m", "kubernetes.io/service-name": "m"}
        endpoint = {"addresses": ["127.0.0.1"], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "name": "pod"}}
        ports = [{"name": "http", "port": listener.getsockname()[1]}]
        endpoints = {"metadata": {**metadata, "name": "m-1", "labels": labels}, "addressType": "IPv4", "ports": ports, "endpoints": [endpoint]}
        await api_server.put("endpointslices", endpoints)
        await asyncio.wait_for(asyncio.gather(*asking), timeout=60)
    assert {(client.data[:15], client.data.count(b"[DONE]"), client.data.endswith(b"0\r\n\r\n")) for client in held} == {(b"HTTP/1.1 200 OK", 1, True)}
    assert len(replica.arrivals) == BOUND
    since = [when - replica.arrivals[0] for when in replica.arrivals]
    num_at_first = sum(seconds < 0.5 for seconds in since)
    assert num_at_first < BOUND / 2
    with capsys.disabled():
        words = f"of {BOUND} that were held {num_at_first} came within 0.5 s, the last {since[-1]:.1f} s after the first"
        sys.stdout.write(f"\n{len(refused)} refused within {refused_seconds:.2f} s; {words}\n")
