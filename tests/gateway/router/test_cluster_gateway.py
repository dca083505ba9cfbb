"""`stoker-gateway` as a process, with a cluster's API server and replicas over real sockets."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

Manifest = dict[str, Any]
MODELS = "inferencedeployments"
SLICES = "endpointslices"
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{"id": "answer"}'


def deployment(name: str, replicas: int = 1) -> Manifest:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    spec = {"model": {"uri": "file:///m"}, "replicas": replicas, "traffic": {"queue": {"maxRequests": 0}, "timeouts": {"connect": "1s"}}}
    return {"metadata": metadata, "spec": spec}


def endpoint_slice(owner: str, port: int) -> Manifest:
    labels = {"stoker.dev/inference-deployment": owner, "kubernetes.io/service-name": owner}
    metadata = {"name": f"{owner}-1", "namespace": "default", "uid": f"slice-{owner}", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels}
    endpoint = {"addresses": ["127.0.0.1"], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "name": f"pod-{port}"}}
    return {"metadata": metadata, "addressType": "IPv4", "ports": [{"name": "http", "port": port}], "endpoints": [endpoint]}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    port = free_port()
    command = [sys.executable, "-m", "stoker_gateway.router", "--host=127.0.0.1", f"--port={port}", "--resync=500ms", "--drain-delay=0s", "--drain-timeout=0s"]
    process = await asyncio.create_subprocess_exec(*command, f"--termination-message-path={folder / 'termination'}", env=dict(os.environ))
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False) as client:
            async with asyncio.timeout(60):
                while await status(client, "/livez") != 200:
                    await asyncio.sleep(0.02)
            yield client
            assert process.returncode is None
    finally:
        process.terminate()
        assert await process.wait() == 0


async def status(client: httpx.AsyncClient, path: str) -> int:
    try:
        return (await client.get(path)).status_code
    except httpx.TransportError:
        return 0


async def chat(client: httpx.AsyncClient, model: str) -> httpx.Response:
    return await client.post("/v1/chat/completions", json={"model": model, "messages": []})


@pytest.mark.case("C015")
async def test_a_gateway_follows_the_cluster_and_serves_on_without_it(api_server: Any, replica: Any, tmp_path: Path) -> None:
    async def until_chat(client: httpx.AsyncClient, code: int) -> None:
        async with asyncio.timeout(20):
            while (await chat(client, "m")).status_code != code:
                await asyncio.sleep(0.02)

    api_server.refuse = 503
    await api_server.put(MODELS, deployment("m"))
    await api_server.put(MODELS, deployment("idle", replicas=0))
    async with replica(ANSWER) as first, replica(ANSWER) as second, gateway(tmp_path) as client:
        await api_server.put(SLICES, endpoint_slice("m", first.port))
        assert await status(client, "/readyz") == 503, "not before it knows everything"
        assert (await chat(client, "m")).status_code == 503, "nor does it say that there is no such model"
        api_server.refuse = 0
        async with asyncio.timeout(20):
            while await status(client, "/readyz") != 200:
                await asyncio.sleep(0.02)
        assert sorted(model["id"] for model in (await client.get("/v1/models")).json()["data"]) == ["idle", "m"]
        for name in ("m", "default/m"):
            assert (await chat(client, name)).json() == {"id": "answer"}
            assert json.loads(first.last_body)["model"] == "m", "the replica knows no other name"
        unknown, idle = await chat(client, "nobody"), await chat(client, "idle")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
        assert idle.status_code == 503 and int(idle.headers["retry-after"]) > 0

        await api_server.stop()
        assert (await chat(client, "m")).status_code == 200 == await status(client, "/readyz")
        await api_server.delete(SLICES, "default", "m-1")
        await api_server.put(SLICES, endpoint_slice("m", second.port))
        await api_server.start()
        async with asyncio.timeout(20):
            while second.num_requests == 0:
                await chat(client, "m")
        num_before = first.num_requests
        for _ in range(5):
            assert (await chat(client, "m")).status_code == 200
        assert first.num_requests == num_before, "what was deleted meanwhile gets nothing any more"
        await api_server.delete(MODELS, "default", "m")
        await until_chat(client, 404)
