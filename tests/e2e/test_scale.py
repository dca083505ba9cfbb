"""Replicas, idle objects and operators that are not there: who writes what, and how often."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.cluster import Cluster, Manifest, Writes
from deployed import KIND, LABEL, Deployed
from operated import Operated, answers, scripted

SECONDS = 60.0
NUM_TOUCHES = 50
IDLE_SECONDS = 60.0
CHILDREN = ("ServiceAccount", "Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy")


def _replicas(model: Deployed) -> tuple[int, int]:
    return model.get()["spec"]["replicas"], model.deployment["spec"]["replicas"]


def _settled(model: Deployed) -> bool:
    found = model.get()
    return bool(found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"])


def _wait(cluster: Cluster, condition: Callable[[], Any], what: str) -> Any:
    return cluster.wait_until(condition, SECONDS, what)


def _writes(place: Operated, since: datetime) -> Writes:
    return [write for write in place.cluster.audit_writes(since, place.account.user) if write.resource != "leases"]


def test_replicas_that_an_autoscaler_wrote_stay_whoever_else_touches_the_object(cluster: Cluster, place: Operated) -> None:
    # Pods that no node takes: how many are asked for is what counts.
    model = place.apply("alpha", replicas=1, podTemplate={"spec": {"nodeSelector": {"stoker-e2e": "nowhere"}}})
    with place.operator("operator"):
        _wait(cluster, lambda: cluster.find("Deployment", "alpha", place.namespace), "there is a Deployment")
        model.scale(4)
        _wait(cluster, lambda: _replicas(model) == (4, 4), "both have 4 replicas")
        generation = model.deployment["metadata"]["generation"]
        for number in range(NUM_TOUCHES):
            kind = "labels" if number % 2 else "annotations"
            cluster.patch(KIND, "alpha", place.namespace, {"metadata": {kind: {"touched": str(number)}}})
            assert _replicas(model) == (4, 4)
        cluster.patch("Deployment", "alpha", place.namespace, {"spec": {"replicas": 2}})
        _wait(cluster, lambda: _replicas(model) == (4, 4), "the Deployment has 4 replicas again")
        # Two more for the edit and its repair: the touches themselves changed nothing.
        assert model.deployment["metadata"]["generation"] == generation + 2
        model.scale(0)
        _wait(cluster, lambda: _replicas(model) == (0, 0) and not model.pods, "no pod is left")


def test_an_idle_object_is_not_written_for_a_minute(cluster: Cluster, place: Operated, report: Callable[[str], None]) -> None:
    model = place.apply("alpha", replicas=1, podTemplate=scripted({}))
    empty = place.apply("empty")
    with place.operator("operator", "--resync=5s"):
        model.wait_ready()
        empty.wait_ready()
        kinds = (KIND, *CHILDREN, "Pod", "ReplicaSet")
        before, since = _versions(cluster, place, kinds), datetime.now(UTC)
        _wait_seconds(cluster, since)
        writes = _writes(place, since)
    report(f"idle: {len(writes)} writes in {IDLE_SECONDS:g} s at a resync of 5 s")
    assert writes == []
    assert _versions(cluster, place, kinds) == before


def _wait_seconds(cluster: Cluster, since: datetime) -> None:
    cluster.wait_until(lambda: (datetime.now(UTC) - since).total_seconds() >= IDLE_SECONDS, 2 * IDLE_SECONDS, "the time is over")


def _versions(cluster: Cluster, place: Operated, kinds: tuple[str, ...]) -> dict[str, str]:
    return {f"{kind}/{obj['metadata']['name']}": obj["metadata"]["resourceVersion"] for kind in kinds for obj in cluster.list(kind, place.namespace)}


def test_objects_that_were_replaced_without_annotations_converge_and_leave_no_orphans(cluster: Cluster, place: Operated, tmp_path: Path) -> None:
    model = place.apply("alpha", replicas=1, podTemplate={"spec": {"nodeSelector": {"stoker-e2e": "nowhere"}}})
    with place.operator("operator"):
        _wait(cluster, lambda: _settled(model) and len(model.pods) == 1, "it is settled")
        children = {kind: cluster.get(kind, "alpha", place.namespace)["metadata"]["uid"] for kind in CHILDREN}
        pods, marks = model.pod_names, model.deployment["metadata"]["annotations"]
        _replace(cluster, tmp_path, "Deployment", model)
        _replace(cluster, tmp_path, KIND, model)
        _wait(cluster, lambda: _has_marks(model, marks), "the Deployment is marked again")
        _wait(cluster, lambda: _settled(model), "it is settled again")
        assert {kind: cluster.get(kind, "alpha", place.namespace)["metadata"]["uid"] for kind in CHILDREN} == children
        assert model.pod_names == pods
        for kind in (*CHILDREN, "ReplicaSet"):
            assert [obj["metadata"]["labels"][LABEL] for obj in cluster.list(kind, place.namespace, LABEL)] == ["alpha"]


def _has_marks(model: Deployed, marks: dict[str, str]) -> bool:
    return {name: value for name, value in model.deployment["metadata"].get("annotations", {}).items() if name.startswith("stoker.dev/")} == {
        name: value for name, value in marks.items() if name.startswith("stoker.dev/")
    }


def _replace(cluster: Cluster, folder: Path, kind: str, model: Deployed) -> None:
    """As `kubectl replace` of a file that knows nothing of annotations, labels aside, and who manages what."""
    found: Manifest = cluster.get(kind, model.name, model.namespace)
    for field in ("annotations", "managedFields", "resourceVersion"):
        found["metadata"].pop(field, None)
    path = folder / f"{kind}.yaml"
    path.write_text(yaml.safe_dump(found))
    cluster.kubectl("replace", "-f", str(path))


@pytest.mark.case("C090")
def test_without_an_operator_pods_serve_and_a_deletion_works(cluster: Cluster, place: Operated) -> None:
    model = place.apply("alpha", replicas=1, podTemplate=scripted({}))
    with place.operator("operator"):
        model.wait_ready()
    assert answers(model)
    cluster.delete(KIND, "alpha", place.namespace)
    kinds = (KIND, *CHILDREN, "ReplicaSet", "Pod")
    _wait(cluster, lambda: not any(cluster.list(kind, place.namespace, LABEL) for kind in kinds), "nothing is left")
