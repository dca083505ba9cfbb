"""KubernetesSource: what the API server has becomes the fleet, and stays right whatever becomes of watches and of the API server."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from stoker_engine.errors import ConfigError
from stoker_gateway.router.cluster import api_server as calls
from stoker_gateway.router.cluster import mirror
from stoker_gateway.router.cluster.api_server import CallTimes, connect
from stoker_gateway.router.cluster.kubernetes_source import KubernetesSource, build_view
from stoker_gateway.router.cluster.objects import read_deployment, read_slice
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.fleet_view import Address
from stoker_gateway.router.traffic import TimeoutConfig, TrafficConfig

Until = Callable[[Callable[[], bool]], Awaitable[None]]
Manifest = dict[str, Any]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "TIMES", CallTimes(connect=1.0, silence=0.3, whole=2.0))
    monkeypatch.setattr(mirror, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(mirror, "MAX_PAUSE_SECONDS", 0.1)


def deployment(name: str, namespace: str = "default", created: str = "2026-01-01T00:00:00Z", **spec: Any) -> Manifest:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "creationTimestamp": created, "generation": 1}
    return {"metadata": metadata, "spec": {"model": {"uri": "file:///m"}, "replicas": 2, **spec}}


def endpoint(pod: str, address: str | None, **conditions: bool) -> Manifest:
    return {
        "addresses": [address] if address else [],
        "conditions": {"ready": True, "serving": True, "terminating": False, **conditions},
        "targetRef": {"kind": "Pod", "name": pod},
    }


def endpoint_slice(owner: str, *endpoints: Manifest, name: str = "", namespace: str = "default", port: int = 8000, family: str = "IPv4") -> Manifest:
    labels = {"stoker.dev/inference-deployment": owner, "kubernetes.io/service-name": owner}
    metadata = {"name": name or f"{owner}-1", "namespace": namespace, "uid": f"slice-{owner}", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels}
    return {"metadata": metadata, "addressType": family, "ports": [{"name": "http", "port": port, "protocol": "TCP"}], "endpoints": list(endpoints)}


@asynccontextmanager
async def watching(*namespaces: str, resync_seconds: float = 60.0) -> AsyncIterator[Fleet]:
    fleet = Fleet()
    async with connect() as server:
        task = asyncio.create_task(KubernetesSource(server, namespaces, resync_seconds).run(fleet.update))
        try:
            yield fleet
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])


def ready(fleet: Fleet, name: str = "m") -> list[str]:
    """The addresses that may get a request."""
    model = fleet.find(name)
    return [] if model is None else [str(endpoint.address) for endpoint in model.endpoints if endpoint.is_ready]


async def test_nothing_is_told_before_everything_was_listed(api_server: Any, until: Until) -> None:
    api_server.refuse = 503
    await api_server.put("inferencedeployments", deployment("m"))
    await api_server.put("endpointslices", endpoint_slice("m", endpoint("a", "10.0.0.1"), endpoint("b", "10.0.0.2", ready=False)))
    async with watching() as fleet:
        await asyncio.sleep(0.1)
        assert not fleet.is_synced
        api_server.refuse = 0
        await until(lambda: fleet.is_synced)
        assert ready(fleet) == ready(fleet, "default/m") == ["10.0.0.1:8000"]
        model = fleet.find("m")
        assert model is not None and model.view.replicas == 2 and [each.view.pod for each in model.endpoints] == ["a", "b"]


async def test_a_list_in_pages_is_read_whole(api_server: Any, until: Until) -> None:
    api_server.page_size = 3
    for number in range(8):
        await api_server.put("inferencedeployments", deployment(f"m{number}"))
    async with watching() as fleet:
        await until(lambda: fleet.is_synced)
        assert sorted(model.view.name for model in fleet.models) == [f"m{number}" for number in range(8)]


@pytest.mark.case("C096")
async def test_changes_of_endpoints_arrive_by_the_watch(api_server: Any, until: Until) -> None:
    await api_server.put("inferencedeployments", deployment("m"))
    async with watching() as fleet:
        await until(lambda: fleet.is_synced)
        for endpoints, expected in (
            ([endpoint("a", "10.0.0.1")], ["10.0.0.1:8000"]),
            ([endpoint("a", "10.0.0.1"), endpoint("b", "10.0.0.2")], ["10.0.0.1:8000", "10.0.0.2:8000"]),
            ([endpoint("a", "10.0.0.1", ready=False), endpoint("b", "10.0.0.2")], ["10.0.0.2:8000"]),
            ([endpoint("a", "10.0.0.1"), endpoint("b", "10.0.0.2", ready=False, terminating=True)], ["10.0.0.1:8000"]),
            ([endpoint("a", "10.0.0.1", terminating=True)], []),
            ([endpoint("a", None), endpoint("b", "10.0.0.3")], ["10.0.0.3:8000"]),
            ([], []),
        ):
            await api_server.put("endpointslices", endpoint_slice("m", *endpoints))
            await until(lambda expected=expected: ready(fleet) == expected)  # type: ignore[misc]
        assert api_server.num_lists["endpointslices"] == 1


async def test_a_changed_port_leaves_nothing_at_the_old_one(api_server: Any, until: Until) -> None:
    await api_server.put("inferencedeployments", deployment("m"))
    await api_server.put("endpointslices", endpoint_slice("m", endpoint("a", "10.0.0.1"), name="old"))
    async with watching() as fleet:
        await until(lambda: ready(fleet) == ["10.0.0.1:8000"])
        await api_server.put("endpointslices", endpoint_slice("m", endpoint("a", "10.0.0.1"), name="new", port=9000))
        await until(lambda: ready(fleet) == ["10.0.0.1:9000"])
        await api_server.delete("endpointslices", "default", "old")
        await api_server.put("inferencedeployments", deployment("n"))
        await until(lambda: fleet.find("n") is not None)
        assert ready(fleet) == ["10.0.0.1:9000"]


async def test_slices_of_other_services_are_nothing_to_us(api_server: Any, until: Until) -> None:
    await api_server.put("inferencedeployments", deployment("m"))
    foreign = endpoint_slice("m", endpoint("x", "10.0.0.9"), name="foreign")
    foreign["metadata"]["labels"]["kubernetes.io/service-name"] = "another"
    await api_server.put("endpointslices", foreign)
    await api_server.put("endpointslices", endpoint_slice("m", endpoint("y", "10.0.0.8"), name="elsewhere", namespace="other"))
    await api_server.put("endpointslices", endpoint_slice("m", endpoint("a", "10.0.0.1")))
    async with watching() as fleet:
        await until(lambda: fleet.is_synced)
        assert ready(fleet) == ["10.0.0.1:8000"]


async def test_only_the_named_namespaces_are_watched(api_server: Any, until: Until) -> None:
    for namespace in ("a", "b", "c"):
        await api_server.put("inferencedeployments", deployment("m", namespace))
    async with watching("a", "c") as fleet:
        await until(lambda: fleet.is_synced)
        assert [model.view.namespace for model in fleet.models] == ["a", "c"]
        await api_server.delete("inferencedeployments", "a", "m")
        await until(lambda: [model.view.namespace for model in fleet.models] == ["c"])


@pytest.mark.stress
async def test_there_is_a_watch_for_each_of_many_namespaces(api_server: Any, until: Until) -> None:
    names = [f"n{number}" for number in range(60)]
    async with watching(*names) as fleet:
        await until(lambda: fleet.is_synced and api_server.num_watches >= 120)
        await api_server.put("inferencedeployments", deployment("m", names[-1]))
        await until(lambda: len(fleet.models) == 1)


@pytest.mark.parametrize("way", ["frozen", "mute"])
async def test_a_watch_that_freezes_silently_costs_no_more_than_a_resync(api_server: Any, until: Until, way: str) -> None:
    await api_server.put("inferencedeployments", deployment("m"))
    await api_server.put("endpointslices", endpoint_slice("m", endpoint("a", "10.0.0.1"), endpoint("b", "10.0.0.2")))
    await api_server.put("inferencedeployments", deployment("gone"))
    setattr(api_server, way, True)
    async with watching(resync_seconds=0.1) as fleet:
        await until(lambda: len(ready(fleet)) == 2)
        await api_server.delete("inferencedeployments", "default", "gone")
        await api_server.put("endpointslices", endpoint_slice("m", endpoint("b", "10.0.0.2")))
        await until(lambda: ready(fleet) == ["10.0.0.2:8000"] and fleet.find("gone") is None)


async def test_what_was_deleted_while_the_api_server_was_away_is_gone_when_it_is_back(api_server: Any, until: Until) -> None:
    await api_server.put("inferencedeployments", deployment("m"))
    await api_server.put("endpointslices", endpoint_slice("m", endpoint("a", "10.0.0.1"), endpoint("b", "10.0.0.2")))
    async with watching() as fleet:
        await until(lambda: len(ready(fleet)) == 2)
        model = fleet.find("m")
        await api_server.stop()
        await api_server.put("endpointslices", endpoint_slice("m", endpoint("b", "10.0.0.2")))
        await asyncio.sleep(0.2)
        assert ready(fleet) == ["10.0.0.1:8000", "10.0.0.2:8000"], "serving goes on with what is known"
        await api_server.start()
        await until(lambda: ready(fleet) == ["10.0.0.2:8000"])
        assert fleet.find("m") is model


async def test_a_restored_api_server_whose_versions_are_lower_is_believed(api_server: Any, until: Until) -> None:
    api_server.version = 1000
    await api_server.put("inferencedeployments", deployment("m"))
    async with watching() as fleet:
        await until(lambda: fleet.is_synced)
        await api_server.stop()
        api_server.version = 5
        api_server.objects.clear()
        api_server.events.clear()
        await api_server.put("inferencedeployments", deployment("n"))
        await api_server.start()
        await until(lambda: [model.view.name for model in fleet.models] == ["n"])
        await api_server.put("inferencedeployments", deployment("o"))
        await until(lambda: len(fleet.models) == 2)


@pytest.mark.parametrize("trouble", ["cut", "expired", "garbage", "refused"])
async def test_watches_that_end_in_any_way_are_begun_anew_and_not_in_a_hurry(api_server: Any, until: Until, trouble: str) -> None:
    await api_server.put("inferencedeployments", deployment("m"))
    async with watching() as fleet:
        await until(lambda: fleet.is_synced and api_server.num_watches >= 2)
        api_server.expired = trouble == "expired"
        api_server.garbage = b'{"type": "ADDED", "object"\n' if trouble == "garbage" else b""
        api_server.refuse = 500 if trouble == "refused" else 0
        await api_server.cut()
        await asyncio.sleep(0.15)
        assert api_server.num_lists["inferencedeployments"] < 15
        await api_server.put("inferencedeployments", deployment("n"))
        api_server.expired, api_server.garbage, api_server.refuse = False, b"", 0
        await until(lambda: len(fleet.models) == 2)


async def test_an_idle_cluster_makes_no_new_views(api_server: Any, until: Until) -> None:
    await api_server.put("inferencedeployments", deployment("m"))
    async with watching(resync_seconds=0.1) as fleet:
        await until(lambda: fleet.is_synced)
        changes: list[object] = []
        fleet.listeners.append(changes.append)
        lists = api_server.num_lists["inferencedeployments"]
        await until(lambda: api_server.num_lists["inferencedeployments"] >= lists + 1)
        assert changes == []


async def test_the_spec_of_another_version_is_read_as_far_as_it_can_be(api_server: Any, until: Until) -> None:
    traffic = {"loadBalancing": "Quantum", "retry": {"attempts": 5, "hedge": True}, "timeouts": {"connect": "1s", "streamIdle": "0s", "request": 7}, "new": {}}
    newer = deployment("newer", replicas="many", model={"servedName": 7, "aliases": ["a", 8]}, traffic=traffic)
    await api_server.put("inferencedeployments", newer)
    await api_server.put("inferencedeployments", {"metadata": {"name": "broken", "namespace": "default"}, "spec": None})
    await api_server.put("inferencedeployments", {**deployment("empty"), "spec": None})
    await api_server.put("inferencedeployments", deployment("m"))
    async with watching() as fleet:
        await until(lambda: fleet.is_synced)
        model = fleet.find("newer")
        assert model is not None and model is fleet.find("a") and model.view.replicas == 1
        assert model.view.traffic.load_balancing == TrafficConfig().load_balancing
        assert model.view.traffic.retry.attempts == 5
        assert model.view.traffic.timeouts == TimeoutConfig(connect="1s")
        assert fleet.find("empty") is not None and fleet.find("m") is not None and fleet.find("broken") is None


async def test_a_cluster_that_nobody_names_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"no cluster to talk to: .*set KUBECONFIG"):
        async with connect():
            pass


def test_a_pod_of_two_address_families_counts_once() -> None:
    def raw(obj: Manifest, version: int) -> msgspec.Raw:
        return msgspec.Raw(json.dumps({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}).encode())

    found = read_deployment(raw(deployment("m"), 1))
    six = read_slice(raw(endpoint_slice("m", endpoint("a", "fd00::1"), family="IPv6"), 9))
    four = read_slice(raw(endpoint_slice("m", endpoint("a", "10.0.0.1")), 2))
    names = read_slice(raw(endpoint_slice("m", endpoint("a", "a.example"), family="FQDN"), 3))
    assert found is not None and six is not None and four is not None and names is not None
    assert [each.address for each in build_view(found, [four, six, names]).endpoints] == [Address("10.0.0.1", 8000)]
