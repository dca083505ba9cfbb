"""Deletions, failing API servers and upgrades of the definition: what is left, and what is not lost."""

import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cluster.cluster import Cluster, Manifest
from deployed import KIND, Deployed, condition_of
from installation import CHART
from operated import Operated, operated, scripted
from recording_proxy import LOST, RecordingProxy

SECONDS = 60.0
CHILDREN = ("ServiceAccount", "Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy")
MAX_TRIES = 12
"""Each failing one may be tried again by an event of its siblings."""

WATERMARK = re.compile(r"^( +)watermark:\n(?:\1 +.*\n)+", re.MULTILINE)
NEW = {"watermark": 0.125}
"""A field of `engine` that the definition of an older version does not have."""


def _wait(cluster: Cluster, condition: Callable[[], Any], what: str) -> None:
    cluster.wait_until(condition, SECONDS, what)


def _children(place: Operated, name: str) -> list[Manifest]:
    found = [place.cluster.find(kind, name, place.namespace) for kind in CHILDREN]
    return [each for each in found if each is not None]


def _tries(proxy: RecordingProxy, name: str, *, resource: str, verb: str = "patch") -> list[int]:
    """The answers to them."""
    return [request.status for request in proxy.requests if (request.name, request.resource, request.verb) == (name, resource, verb)]


@pytest.mark.case("C090")
def test_a_namespace_without_an_operator_goes_with_the_inference_deployments_in_it(cluster: Cluster, tmp_path: Path, report: Callable[[str], None]) -> None:
    with operated(cluster, "lifecycle", tmp_path) as place:
        with place.operator("operator"):
            place.apply("alpha", replicas=1, podTemplate=scripted({})).wait_ready()
        began = datetime.now(UTC)
    _wait(cluster, lambda: cluster.find("Namespace", place.namespace) is None, "the namespace is gone")
    report(f"namespace gone after {(datetime.now(UTC) - began).total_seconds():.1f} s")


@pytest.mark.case("C090")
def test_a_deletion_wins_over_a_creation_that_is_being_tried_again(cluster: Cluster, place: Operated, proxy: RecordingProxy) -> None:
    proxy.faults["patch", "services"] = [500] * 1000
    with place.operator("operator"):
        place.apply("alpha")
        _wait(cluster, lambda: len(_tries(proxy, "alpha", resource="services")) >= 3, "the Service is tried again and again")
        cluster.delete(KIND, "alpha", place.namespace)
        _wait(cluster, lambda: cluster.find(KIND, "alpha", place.namespace) is None and not _children(place, "alpha"), "nothing is left")
        num_before = len(proxy.requests)
        proxy.faults.clear()
        # What the operator does for the next one, it does after whatever was left to do for the first.
        place.apply("beta").wait_ready()
        after = proxy.requests[num_before:]
    assert not _children(place, "alpha")
    assert [request for request in after if request.name.startswith("alpha") and request.verb in ("patch", "create", "update") and request.status == 201] == []
    assert not any(request.status == 422 for request in proxy.requests)


@pytest.mark.case("C094")
def test_an_answer_that_was_lost_and_one_that_failed_leave_one_set_of_children(cluster: Cluster, place: Operated, proxy: RecordingProxy) -> None:
    proxy.faults["patch", "deployments"] = [LOST]
    proxy.faults["patch", "services"] = [500]
    with place.operator("operator"):
        model = place.apply("alpha")
        model.wait_ready()
    uid = model.get()["metadata"]["uid"]
    assert [child["metadata"]["ownerReferences"][0]["uid"] for child in _children(place, "alpha")] == [uid] * len(CHILDREN)
    for kind in ("Deployment", "Service"):
        assert [each["metadata"]["name"] for each in cluster.list(kind, place.namespace)] == ["alpha"]
    assert model.deployment["metadata"]["generation"] == 1
    assert _tries(proxy, "alpha", resource="services") == [500, 201]


@pytest.mark.case("C094")
def test_two_operators_make_one_set_of_children(cluster: Cluster, place: Operated) -> None:
    with place.operator("first", "--resync=2s") as first, place.operator("second", "--resync=2s") as second:
        model = place.apply("alpha")
        model.wait_ready()
        uids = [child["metadata"]["uid"] for child in _children(place, "alpha")]
        leader = max((first, second), key=lambda operator: operator.num_reconciled)
        looked = leader.num_reconciled
        _wait(cluster, lambda: leader.num_reconciled >= looked + 5, "it was looked at five times more")
        assert (first.exit_code(), second.exit_code()) == (None, None)
    assert [child["metadata"]["uid"] for child in _children(place, "alpha")] == uids
    assert model.deployment["metadata"]["generation"] == 1


@pytest.mark.parametrize("status", [409, 429, 500])
def test_an_api_server_that_fails_for_a_while_is_asked_again_without_a_storm(cluster: Cluster, place: Operated, proxy: RecordingProxy, status: int) -> None:
    proxy.faults["patch", "deployments"] = [status] * 3
    with place.operator("operator"):
        model = place.apply("alpha")
        model.wait_ready()
        tries = _tries(proxy, "alpha", resource="deployments")
    assert tries[-1] == 201 and len(tries) <= MAX_TRIES


@pytest.mark.case("C092")
def test_watches_that_have_expired_are_begun_anew_and_miss_nothing(cluster: Cluster, place: Operated, proxy: RecordingProxy) -> None:
    proxy.faults["watch", "inferencedeployments"] = [410] * 3
    with place.operator("operator") as operator:
        _wait(cluster, lambda: len(proxy.faults["watch", "inferencedeployments"]) < 3, "a watch was refused")
        place.apply("alpha").wait_ready()
        _wait(cluster, lambda: not proxy.faults["watch", "inferencedeployments"], "all three were refused")
        place.apply("beta").wait_ready()
        assert operator.exit_code() is None


@pytest.mark.case("C095")
def test_an_upgrade_by_helm_brings_the_definitions_new_fields_and_an_uninstall_takes_nothing(cluster: Cluster, place: Operated, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(CHART, old)
    definition = old / "templates" / "crd.yaml"
    definition.write_text(WATERMARK.sub("", definition.read_text(encoding="utf-8"), count=1), encoding="utf-8")
    release = ("aged", f"--namespace={place.namespace}")
    options = (f"--set-json=operator.namespaces={json.dumps([place.namespace])}", "--set=operator.replicas=0", "--take-ownership", "--force-conflicts")
    cluster.helm("install", *release, str(old), *options)
    kept = {"maxModelLen": 512, "seed": 7}
    try:
        model = place.apply("alpha", engine=kept)
        cluster.kubectl("patch", "infdep", "alpha", f"--namespace={place.namespace}", "--type=merge", "--patch", json.dumps({"spec": {"engine": NEW}}))
        assert "watermark" not in model.get()["spec"]["engine"]
        with place.operator("operator", "--resync=1s") as operator:
            model.wait_ready()
            assert "it has no spec.engine.watermark" in operator.log.read_text()
            accepted = condition_of(model.get(), "SpecAccepted")
            assert (accepted["status"], accepted["reason"]) == ("True", "OutdatedDefinition")
            assert "the API server drops spec.engine.watermark;" in accepted["message"]
            since, looked = datetime.now(UTC), operator.num_reconciled
            _wait(cluster, lambda: operator.num_reconciled >= looked + 3, "it was looked at three times more")
            assert [write for write in cluster.audit_writes(since, place.account.user) if write.resource != "leases"] == []
            cluster.helm("upgrade", *release, CHART, *options)
            _wait(cluster, lambda: condition_of(model.get(), "SpecAccepted")["reason"] == "Accepted", "it is over with the upgrade")
            (write,) = [write for write in cluster.audit_writes(since, place.account.user) if write.resource != "leases"]
            assert (write.name, write.subresource) == ("alpha", "status")
        _wait(cluster, lambda: _keeps_new_field(place, model), "the new field is kept")
        assert kept.items() <= model.get()["spec"]["engine"].items()
    finally:
        cluster.helm("uninstall", *release)
    assert model.get()["spec"]["engine"]["watermark"] == NEW["watermark"]
    assert condition_of(model.get(), "Ready")["status"] == "True"


def _keeps_new_field(place: Operated, model: Deployed) -> bool:
    """The API server needs a moment to serve a changed definition."""
    model.patch(engine=NEW)
    return bool(model.get()["spec"]["engine"].get("watermark") == NEW["watermark"])


@pytest.mark.case("C092")
def test_an_operator_whose_watch_failed_for_good_ends_and_the_next_one_goes_on(cluster: Cluster, place: Operated, proxy: RecordingProxy) -> None:
    with place.operator("first") as first:
        place.apply("alpha").wait_ready()
    proxy.faults["watch", "inferencedeployments"] = [500]
    with place.operator("second") as second:
        _wait(cluster, lambda: second.exit_code() is not None, "it has ended")
        assert second.exit_code() == 1 and "watching the cluster failed" in second.log.read_text()
    with place.operator("third"):
        place.apply("beta").wait_ready()
    assert first.exit_code() == 0
