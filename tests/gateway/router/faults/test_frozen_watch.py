"""The gateway's process, a cluster whose watches freeze without a word, and pods that go meanwhile."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx

Manifest = dict[str, Any]
MODELS, SLICES = "inferencedeployments", "endpointslices"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"


def deployment(name: str) -> Manifest:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    return {"metadata": metadata, "spec": {"model": {"uri": "file:///m"}, "traffic": {"loadBalancing": "RoundRobin", "timeouts": {"connect": "1s"}}}}


def endpoint_slice(*ports: int) -> Manifest:
    """Of one port each: the address tells the pods apart."""
    labels = {"stoker.dev/inference-deployment": "m", "kubernetes.io/service-name": "m"}
    metadata = {"namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels}
    (port,) = ports
    endpoint = {"addresses": ["127.0.0.1"], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "name": f"pod-{port}"}}
    return {
        "metadata": {**metadata, "name": f"m-{port}", "uid": f"slice-{port}"},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port}],
        "endpoints": [endpoint],
    }


async def test_a_pod_that_goes_while_the_watch_is_frozen_costs_one_failed_connection_and_is_gone_at_the_next_resync(
    api_server: Any, replica: Any, start_gateway: Any, samples_of: Callable[[str], dict[tuple[str, ...], float]]
) -> None:
    # What nobody else may take while the test runs, but nobody serves either.
    with socket.socket() as gone:
        gone.bind(("127.0.0.1", 0))
        gone_port = gone.getsockname()[1]
        await api_server.put(MODELS, deployment("m"))
        async with replica(ANSWER) as first, replica(ANSWER) as second:
            for port in (first.port, second.port, gone_port):
                await api_server.put(SLICES, endpoint_slice(port))
            api_server.frozen = True
            gateway = start_gateway("--resync=1s")
            async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=20) as client:

                async def status(path: str) -> int:
                    with suppress(httpx.TransportError):
                        return (await client.get(path)).status_code
                    return 0

                async def samples() -> dict[tuple[str, ...], float]:
                    return samples_of((await client.get("/metrics")).text)

                def known(found: dict[tuple[str, ...], float]) -> set[int]:
                    endpoints = [key[1] for key in found if key[0] == "stoker_gateway_num_requests_in_flight"]
                    return {int(endpoint.rpartition(":")[2]) for endpoint in endpoints}

                async with asyncio.timeout(20):
                    while await status("/readyz") != 200:
                        await asyncio.sleep(0.02)
                assert known(await samples()) == {first.port, second.port, gone_port}
                await api_server.delete(SLICES, "default", f"m-{gone_port}")
                num_sent = 0
                async with asyncio.timeout(20):
                    while gone_port in known(await samples()):
                        answers = await asyncio.gather(*(client.post("/v1/chat/completions", json={"model": "m"}) for _ in range(3)))
                        assert {answer.status_code for answer in answers} == {200}
                        num_sent += 3
                        await asyncio.sleep(0.05)
                found = await samples()
    assert num_sent > 0 and found["stoker_gateway_retries_total", "m"] <= 1
