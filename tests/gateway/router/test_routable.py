"""The condition Routable, written by any number of gateways into the status of InferenceDeployments."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from stoker_gateway.router.cluster import mirror, routable
from stoker_gateway.router.cluster.api_server import connect
from stoker_gateway.router.cluster.kubernetes_source import KubernetesSource
from stoker_gateway.router.cluster.routable import RoutableWriter
from stoker_gateway.router.fleet import Fleet

Manifest = dict[str, Any]
PLURAL = "inferencedeployments"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(mirror, "MAX_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(routable, "MIN_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(routable, "MAX_PAUSE_SECONDS", 0.04)
    monkeypatch.setattr(routable, "AGAIN_SECONDS", 0.1)


def deployment(name: str, created: str = "2026-01-01T00:00:00Z", served_name: str = "m") -> Manifest:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "creationTimestamp": created, "generation": 3}
    ready = {"type": "Ready", "status": "True"}
    return {"metadata": metadata, "spec": {"model": {"servedName": served_name}}, "status": {"replicas": 1, "conditions": [ready]}}


def endpoint_slice(owner: str, *, is_ready: bool = True) -> Manifest:
    labels = {"stoker.dev/inference-deployment": owner, "kubernetes.io/service-name": owner}
    metadata = {"name": f"{owner}-1", "namespace": "default", "uid": f"slice-{owner}", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels}
    endpoint = {"addresses": ["10.0.0.1"], "conditions": {"ready": is_ready}, "targetRef": {"kind": "Pod", "name": "a"}}
    return {"metadata": metadata, "addressType": "IPv4", "ports": [{"name": "http", "port": 8000}], "endpoints": [endpoint]}


@asynccontextmanager
async def gateway() -> AsyncIterator[Fleet]:
    fleet = Fleet()
    async with connect() as server:
        source = KubernetesSource(server, (), 60.0)
        tasks = [asyncio.create_task(RoutableWriter(server, source, fleet).run()), asyncio.create_task(source.run(fleet.update))]
        try:
            yield fleet
            assert not any(task.done() for task in tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


def condition(api_server: Any, name: str) -> Manifest:
    conditions = api_server.objects[PLURAL]["default", name]["status"]["conditions"]
    return next((each for each in conditions if each["type"] == "Routable"), {})


async def test_the_status_says_whether_the_gateway_serves_the_name(api_server: Any, until: Any) -> None:
    await api_server.put(PLURAL, deployment("old"))
    await api_server.put(PLURAL, deployment("young", "2026-02-01T00:00:00Z"))
    await api_server.put("endpointslices", endpoint_slice("old"))
    async with gateway():
        await until(lambda: condition(api_server, "old") and condition(api_server, "young"))
        first = condition(api_server, "old")
        assert (first["status"], first["reason"], first["observedGeneration"]) == ("True", "Served", 3)
        assert first["message"] == "The gateway serves it as m, default/old."
        later = condition(api_server, "young")
        assert (later["status"], later["reason"]) == ("False", "NameTaken")
        assert later["message"] == "The name m belongs to default/old. This one is served as default/young; choose another name for it."
        await api_server.put("endpointslices", endpoint_slice("old", is_ready=False))
        await until(lambda: condition(api_server, "old")["reason"] == "NoReadyReplicas")
        path, applied = api_server.applied[-1]
        assert path.startswith("/apis/stoker.dev/v1alpha1/namespaces/default/inferencedeployments/")
        assert [each["type"] for each in applied["status"]["conditions"]] == ["Routable"], "other writers' conditions are not touched"


async def test_gateways_that_see_the_same_write_it_once_and_then_rest(api_server: Any, until: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routable, "MAX_PAUSE_SECONDS", 0.2)
    await api_server.put(PLURAL, deployment("old"))
    await api_server.put("endpointslices", endpoint_slice("old"))
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(gateway())
        await until(lambda: condition(api_server, "old"))
        await asyncio.sleep(0.25)
        assert len(api_server.applied) <= 3
        written = api_server.version
        await asyncio.sleep(0.15)
        assert api_server.version == written


async def test_the_time_of_the_transition_changes_with_the_status_alone(api_server: Any, until: Any) -> None:
    obj = deployment("old")
    was = {"type": "Routable", "status": "True", "reason": "Served", "message": "other words", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    obj["status"]["conditions"].append(was)
    await api_server.put(PLURAL, obj)
    await api_server.put("endpointslices", endpoint_slice("old"))
    async with gateway():
        await until(lambda: condition(api_server, "old")["message"] != "other words")
        assert condition(api_server, "old")["lastTransitionTime"] == "2026-01-02T03:04:05Z"
        await api_server.delete("endpointslices", "default", "old-1")
        await until(lambda: condition(api_server, "old")["status"] == "False")
        assert condition(api_server, "old")["lastTransitionTime"] > "2026-01-02T03:04:05Z"


async def test_a_status_that_may_not_be_written_costs_nothing_else(api_server: Any, until: Any) -> None:
    api_server.forbid_status = True
    await api_server.put(PLURAL, deployment("old"))
    async with gateway() as fleet:
        await until(lambda: len(api_server.applied) >= 2)
        assert fleet.find("m") is not None
        api_server.forbid_status = False
        await until(lambda: condition(api_server, "old"))
