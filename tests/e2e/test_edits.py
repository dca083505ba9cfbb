"""Edits of what serves, in quick succession or taken back half way, and of what never served: which pods they cost, and how many serve meanwhile."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from cluster.cluster import Cluster, Manifest
from cluster.waiting import wait_until
from deployed import LABEL, START_SECONDS, Deployed
from history import history
from operated import Operated, operated, scripted

Report = Callable[[str], None]

REPLICA_SETS = "system:serviceaccount:kube-system:replicaset-controller"
DEVICE = "e2e.stoker.dev/scarce"
SCRIPT: Manifest = scripted({})
BROKEN: Manifest = scripted({"exit_code": 7})
SERVING: Manifest = {"replicas": 2, "podTemplate": SCRIPT}


@pytest.fixture(scope="module")
def place(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    with operated(cluster, "edits", tmp_path_factory.mktemp("operator")) as place, place.operator("operator"):
        yield place


@pytest.fixture(scope="module")
def serving(place: Operated) -> Deployed:
    """Two replicas; each test leaves as many that serve."""
    model = place.apply("alpha", **SERVING)
    model.wait_settled()
    return model


def _env(value: str) -> Manifest:
    return {"env": [{"name": "EDIT", "value": value}]}


def _num_pods_made(place: Operated, model: Deployed, since: datetime) -> int:
    writes = place.cluster.audit_writes(since, REPLICA_SETS)
    return sum((write.verb, write.resource, write.subresource, write.namespace, write.code) == ("create", "pods", "", place.namespace, 201) for write in writes)


def _replica_sets(place: Operated, model: Deployed) -> set[str]:
    return {str(each["metadata"]["name"]) for each in place.cluster.list("ReplicaSet", place.namespace, f"{LABEL}={model.name}")}


def _num_routed(endpoint_slice: Manifest) -> int:
    """The pods that a Service sends requests to."""
    return sum(bool(each["conditions"].get("ready")) for each in endpoint_slice.get("endpoints") or [])


def _slice_name(place: Operated, model: Deployed) -> str:
    (found,) = place.cluster.list("EndpointSlice", place.namespace, f"kubernetes.io/service-name={model.name}")
    return str(found["metadata"]["name"])


def test_a_creation_and_every_edit_make_as_many_pods_as_replicas_and_one_replica_set(cluster: Cluster, place: Operated, report: Report) -> None:
    began = datetime.now(UTC)
    model = place.apply("counted", **SERVING)
    model.wait_settled()
    made, sets = [_num_pods_made(place, model, began)], [len(_replica_sets(place, model))]
    for engine in (_env("one"), {"image": "localhost/stoker-engine:dev"}):
        began, old = datetime.now(UTC), _replica_sets(place, model)
        model.patch(engine=engine)
        model.wait_settled()
        made.append(_num_pods_made(place, model, began))
        sets.append(len(_replica_sets(place, model) - old))
    report(f"pods made by a creation, an edit of the environment and one of the image of 2 replicas: {made}, new ReplicaSets: {sets}")
    assert (made, sets) == ([2, 2, 2], [1, 1, 1])
    model.scale(0)


def test_edits_in_quick_succession_leave_every_replica_routed(cluster: Cluster, place: Operated, serving: Deployed, report: Report) -> None:
    with history(cluster, "EndpointSlice", _slice_name(place, serving), place.namespace) as routed:
        for number in range(4):
            old = set(serving.pod_names)
            serving.patch(engine=_env(f"quick {number}"))
            # The next one comes in the middle of it.
            _wait_for_another_pod(serving, old)
        serving.wait_settled()
    counts = [_num_routed(version) for version in routed.versions]
    report(f"4 edits in quick succession: from {min(counts)} to {max(counts)} of 2 replicas routed")
    assert min(counts) >= 2


def _wait_for_another_pod(model: Deployed, old: set[str]) -> None:
    wait_until(lambda: set(model.pod_names) - old, START_SECONDS, "a pod of this edit is there")


def test_an_edit_that_is_taken_back_half_way_costs_no_pod_that_serves_as_asked(cluster: Cluster, place: Operated, serving: Deployed, report: Report) -> None:
    old = set(serving.pod_names)
    before = serving.get()["spec"]["engine"].get("env")
    with history(cluster, "EndpointSlice", _slice_name(place, serving), place.namespace) as routed:
        serving.patch(engine=_env("taken back"))
        wait_until(lambda: set(serving.ready_pod_names) - old and old - set(serving.pod_names), START_SECONDS, "the rollout is half done")
        kept = old & set(serving.ready_pod_names)
        serving.patch(engine={"env": before})
        serving.wait_settled()
    counts = [_num_routed(version) for version in routed.versions]
    report(f"taken back half way: {len(kept)} old pods still served, {min(counts)} to {max(counts)} of 2 replicas routed")
    assert kept and kept <= set(serving.pod_names)
    assert min(counts) >= 2


def test_a_good_template_replaces_pods_of_which_none_ever_served(cluster: Cluster, place: Operated) -> None:
    model = place.apply("broken", **{**SERVING, "podTemplate": BROKEN})
    wait_until(lambda: _num_crashed(model) == 2, START_SECONDS, "both replicas have crashed")
    old = model.pod_names
    place.apply("broken", **SERVING)
    model.wait_settled()
    assert not set(old) & set(model.pod_names)
    model.scale(0)


def test_a_good_template_replaces_broken_pods_that_hold_the_last_accelerators(cluster: Cluster, place: Operated, devices: None) -> None:
    spec: dict[str, Any] = {**SERVING, "accelerator": {"resourceName": DEVICE, "count": 1}}
    model = place.apply("scarce", **{**spec, "podTemplate": BROKEN})
    wait_until(lambda: _num_crashed(model) == 2, START_SECONDS, "both replicas have crashed")
    place.apply("scarce", **spec)
    model.wait_settled()
    assert model.deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    model.scale(0)


@pytest.fixture
def devices(cluster: Cluster) -> Iterator[None]:
    """Two of them."""
    node = cluster.nodes()[0]["metadata"]["name"]
    cluster.set_extended_resource(DEVICE, 2, node)
    yield
    none = {DEVICE: None}
    cluster.patch_status("Node", node, None, {"status": {"capacity": none, "allocatable": none}})


def _num_crashed(model: Deployed) -> int:
    """Pods with a container that ended and was started again."""
    return sum(any(each["restartCount"] for each in pod["status"].get("initContainerStatuses", [])) for pod in model.pods)
