"""Replicas that come, drain, die and go for minutes, under requests at a low rate."""

import asyncio
import random
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

SECONDS = 180
NUM_REPLICAS = 4
REQUESTS_PER_SECOND = 40
EVENT = b"data: 1\n\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n%s\r\n"


@dataclass
class Replica:
    """Streams last half a second. A drain answers what is there and refuses what comes, as the api does."""

    port: int = 0
    is_draining: bool = False
    num_serving: int = 0
    num_served: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    server: asyncio.Server | None = None

    async def start(self) -> None:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=256)
        self.port = self.server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        assert self.server is not None
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
                body = await reader.readexactly(int(length or 0))
                self.num_serving += 1
                try:
                    await self._answer(head, body, writer)
                finally:
                    self.num_serving -= 1
        self.writers.discard(writer)
        writer.transport.abort()

    async def _answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        if head.startswith(b"GET") or self.is_draining:
            error = b'{"error":{"message":"no","type":"server_error","param":null,"code":"draining"}}'
            more = b"Retry-After: 1\r\nContent-Length: %d\r\n" % len(error)
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\n%s\r\n%s" % (more, error))
        elif b"true" in body:
            writer.write(HEAD % (b"text/event-stream", b"Transfer-Encoding: chunked\r\n"))
            for _ in range(10):
                writer.write(b"%x\r\n%s\r\n" % (len(EVENT), EVENT))
                await asyncio.sleep(0.05)
            writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        else:
            await asyncio.sleep(0.05)
            writer.write(HEAD % (b"application/json", b"Content-Length: 2\r\n") + b"{}")
        self.num_served += not head.startswith(b"GET")


@dataclass
class Cluster:
    server: Any
    replicas: list[Replica] = field(default_factory=list)
    num_replaced: int = 0

    async def show(self, terminating: Replica | None = None) -> None:
        """One slice for each: their ports differ."""
        labels = {"stoker.dev/inference-deployment": "m", "kubernetes.io/service-name": "m"}
        for replica in self.replicas:
            port = replica.port
            metadata = {"name": f"m-{port}", "namespace": "default", "uid": f"{port}", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels}
            conditions = {"ready": replica is not terminating, "serving": True, "terminating": replica is terminating}
            endpoint = {"addresses": ["127.0.0.1"], "conditions": conditions, "targetRef": {"kind": "Pod", "name": f"pod-{port}"}}
            ports = [{"name": "http", "port": port}]
            await self.server.put("endpointslices", {"metadata": metadata, "addressType": "IPv4", "ports": ports, "endpoints": [endpoint]})

    async def add(self) -> None:
        self.replicas.append(Replica())
        await self.replicas[-1].start()
        await self.show()

    async def replace(self) -> None:
        """The oldest: told of as terminating, perhaps after its drain began, and stopped when it has nothing left."""
        await self.add()
        replica = self.replicas[0]
        if random.random() < 0.5:
            replica.is_draining = True
            await asyncio.sleep(random.uniform(0, 0.3))
        await self.show(replica)
        await asyncio.sleep(0.5)
        while replica.num_serving:
            await asyncio.sleep(0.001)
        replica.stop()
        await asyncio.sleep(random.uniform(0, 0.3))
        await self.server.delete("endpointslices", "default", f"m-{replica.port}")
        self.replicas.remove(replica)
        self.num_replaced += 1

    async def churn(self) -> None:
        """And now and then the API server drops its connections."""
        while True:
            await self.replace()
            if random.random() < 0.2:
                await self.server.cut()


async def is_answered(client: httpx.AsyncClient, *, stream: bool) -> bool:
    response = await client.post("/v1/chat/completions", json={"model": "m", "stream": stream})
    return response.status_code == 200 and (response.text == "{}" or response.text.count("data: ") == 11)


@pytest.mark.stress
async def test_minutes_of_replicas_that_come_and_go_lose_no_request(api_server: Any, start_gateway: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(api_server)
    metadata = {"name": "m", "namespace": "default", "uid": "uid", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    await api_server.put("inferencedeployments", {"metadata": metadata, "spec": {"model": {"uri": "file:///m"}}})
    for _ in range(NUM_REPLICAS):
        await cluster.add()
    gateway = start_gateway("--resync=5s")
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30, limits=limits) as client:
        async with asyncio.timeout(30):
            ready = False
            while not ready:
                await asyncio.sleep(0.05)
                with suppress(httpx.TransportError):
                    ready = (await client.get("/readyz")).status_code == 200
        churning = asyncio.create_task(cluster.churn())
        asking: list[asyncio.Task[bool]] = []
        files: list[int] = []
        begin = time.monotonic()
        while (now := time.monotonic()) - begin < SECONDS:
            asking.append(asyncio.create_task(is_answered(client, stream=len(asking) % 4 == 0)))
            files.append(gateway.num_open_files)
            await asyncio.sleep(max(0.0, begin + len(asking) / REQUESTS_PER_SECOND - now))
        answered = await asyncio.gather(*asking)
        churning.cancel()
        await asyncio.wait([churning])
        assert churning.cancelled()
    async with asyncio.timeout(90):
        while (left := gateway.num_open_files) > files[0] + NUM_REPLICAS:
            await asyncio.sleep(0.5)
    for replica in cluster.replicas:
        replica.stop()
    async with asyncio.timeout(10):
        while any(replica.writers for replica in cluster.replicas):
            await asyncio.sleep(0.01)
    with capsys.disabled():
        words = f"{len(asking)} requests, {answered.count(False)} lost, while {cluster.num_replaced} replicas were replaced"
        sys.stdout.write(f"\n{words}; the gateway had at most {max(files)} files open, {left} once its connections had grown old\n")
    assert all(answered)
