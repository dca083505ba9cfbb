"""The status beside other writers, over what an older operator left, and while the API server fails."""

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from cluster.cluster import Cluster, Manifest
from deployed import KIND, Deployed, condition_of
from history import history
from operated import Operated, scripted
from recording_proxy import RecordingProxy

SECONDS = 60.0
STATUS = "inferencedeployments/status"
STAMP = "2026-01-01T00:00:00Z"


def _told(kind: str, reason: str) -> Manifest:
    return {"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": STAMP, "observedGeneration": 1}


def _wait(cluster: Cluster, condition: Callable[[], Any], what: str) -> None:
    cluster.wait_until(condition, SECONDS, what)


def _tell_routable(place: Operated, name: str, reason: str) -> None:
    """As a gateway does."""
    manifest = {"apiVersion": "stoker.dev/v1alpha1", "kind": KIND, "metadata": {"name": name}, "status": {"conditions": [_told("Routable", reason)]}}
    file = place.folder / "routable.json"
    file.write_text(json.dumps(manifest))
    options = ("--server-side", "--subresource=status", "--field-manager=stoker-gateway")
    place.cluster.kubectl("apply", *options, f"--namespace={place.namespace}", f"--filename={file}")


def _writes(place: Operated, since: datetime) -> list[str]:
    return [write.resource for write in place.cluster.audit_writes(since, place.account.user) if write.resource != "leases"]


def test_a_condition_that_a_gateway_writes_at_the_same_moment_survives(cluster: Cluster, place: Operated, proxy: RecordingProxy) -> None:
    with place.operator("operator") as operator:
        model = place.apply("alpha")
        model.wait_ready()
        for reason in ("First", "Second"):
            # What the operator sends now was computed before.
            proxy.before["patch", STATUS] = partial(_tell_routable, place, "alpha", reason)
            model.patch(paused=reason == "First", restartedAt=reason)
            _wait(cluster, lambda: not proxy.before and model.is_ready, "the status is that of the new generation")
            assert condition_of(model.get(), "Routable")["reason"] == reason
        since, looked = datetime.now(UTC), operator.num_reconciled
        cluster.patch(KIND, "alpha", place.namespace, {"metadata": {"labels": {"touched": "yes"}}})
        _wait(cluster, lambda: operator.num_reconciled > looked, "it was looked at again")
        assert _writes(place, since) == []
    assert condition_of(model.get(), "Routable")["reason"] == "Second"


def test_what_an_older_operator_left_in_a_status_goes_and_what_others_wrote_stays(cluster: Cluster, place: Operated) -> None:
    model = place.apply("alpha")
    left = [_told("ModelCached", "Cached"), _told("Ready", "AllReplicasReady"), _told("Routable", "Served")]
    status = {"replicas": 3, "model": {"sizeBytes": 1}, "startup": {"lastDurationSeconds": 1.5, "phases": {}}, "conditions": left}
    options = ("--type=merge", "--subresource=status", "--field-manager=stoker-operator", f"--namespace={place.namespace}")
    cluster.kubectl("patch", "infdep", "alpha", *options, "--patch", json.dumps({"status": status}))
    with place.operator("first", "--resync=1s") as operator:
        _wait(cluster, lambda: condition_of(model.get(), "Ready")["reason"] == "ScaledToZero", "the status is the operator's")
        found = model.status
        assert found["replicas"] == 0 and "model" not in found
        assert [each["type"] for each in found["conditions"] if each["reason"] in ("Cached", "Served")] == ["Routable"]
        since, looked = datetime.now(UTC), operator.num_reconciled
        _wait(cluster, lambda: operator.num_reconciled >= looked + 3, "it was looked at three times more")
        assert _writes(place, since) == []


def test_a_status_is_never_written_over_another_object_of_the_same_name(cluster: Cluster, place: Operated, proxy: RecordingProxy) -> None:
    def make_anew() -> None:
        cluster.delete(KIND, "alpha", place.namespace)
        _wait(cluster, lambda: cluster.find(KIND, "alpha", place.namespace) is None, "it is gone")
        cluster.apply(place.manifest("alpha", engine={"seed": 7}))
        made.set()

    made = threading.Event()
    with place.operator("operator"):
        place.apply("beta").wait_ready()
        proxy.before["patch", STATUS] = make_anew
        place.apply("alpha")
        assert made.wait(SECONDS)
        model = Deployed(cluster, "alpha", place.namespace)
        with history(cluster, KIND, "alpha", place.namespace) as seen:
            model.wait_ready()
    assert next(request.status for request in proxy.requests if (request.name, request.resource) == ("alpha", STATUS)) == 409
    assert {version["metadata"]["uid"] for version in seen.versions} == {model.get()["metadata"]["uid"]}
    uid = model.get()["metadata"]["uid"]
    assert model.deployment["metadata"]["ownerReferences"][0]["uid"] == uid


def test_an_api_server_that_fails_for_one_child_costs_nobody_its_status_nor_the_other_children(
    cluster: Cluster, place: Operated, proxy: RecordingProxy
) -> None:
    with place.operator("operator"):
        serving = place.apply("alpha", replicas=1, podTemplate=scripted({}))
        serving.wait_ready()
        proxy.faults["patch", "services"] = [500] * 10_000
        with history(cluster, KIND, "alpha", place.namespace) as seen:
            cluster.patch("Service", "alpha", place.namespace, {"spec": {"ports": [{"name": "http", "port": 80, "targetPort": 1234}]}})
            new = place.apply("beta")
            _wait(cluster, lambda: new.status.get("observedGeneration") == 1 and cluster.find("NetworkPolicy", "beta", place.namespace), "beta has a status")
            _wait(cluster, lambda: _num_failed(proxy, "alpha", "services") >= 3, "the Service is tried again and again")
            assert cluster.find("Deployment", "beta", place.namespace) and not cluster.find("Service", "beta", place.namespace)
            assert not new.is_ready
        assert {condition_of(version, "Ready")["status"] for version in seen.versions} == {"True"}
        before = serving.pod_names
        serving.end_pods()
        _wait(cluster, lambda: not serving.is_ready, "the loss of the pod is told")
        _wait(cluster, lambda: serving.is_ready and serving.pod_names != before, "its successor serves, which is told while the Service fails")
        assert proxy.faults.pop(("patch", "services"))
        new.wait_ready()
        _wait(cluster, lambda: cluster.get("Service", "alpha", place.namespace)["spec"]["ports"][0]["targetPort"] == "http", "the Service is repaired")


def test_an_operator_that_wants_something_else_and_cannot_write_it_yet_takes_ready_from_nobody(
    cluster: Cluster, place: Operated, proxy: RecordingProxy
) -> None:
    with place.operator("first"):
        place.apply("alpha").wait_ready()
    proxy.faults["patch", "networkpolicies"] = [500] * 10_000
    with history(cluster, KIND, "alpha", place.namespace) as seen, place.operator("second", "--gateway-namespace=other"):
        _wait(cluster, lambda: _num_failed(proxy, "alpha", "networkpolicies") >= 3, "the NetworkPolicy is tried again and again")
        assert proxy.faults.pop(("patch", "networkpolicies"))
        _wait(cluster, lambda: "'other'" in str(cluster.get("NetworkPolicy", "alpha", place.namespace)["spec"]), "the NetworkPolicy is the second one's")
    assert {condition_of(version, "Ready")["status"] for version in seen.versions} == {"True"}


def _num_failed(proxy: RecordingProxy, name: str, resource: str) -> int:
    return sum((request.name, request.resource, request.status) == (name, resource, 500) for request in proxy.requests)
