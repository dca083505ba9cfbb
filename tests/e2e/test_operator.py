"""The operator against a real API server and its controllers; replicas are 0, so that no image and no node is needed."""

import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cluster.cluster import Cluster
from operator_process import OperatorAccount, OperatorProcess, operator_account, running_operator
from silent_proxy import silent_proxy
from stoker_operator.crd import custom_resource_definition

KIND = "InferenceDeployment"
CHILDREN = ("ServiceAccount", "Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy")
SECONDS = 30.0


def _manifest(name: str, namespace: str, **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "stoker.dev/v1alpha1",
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"uri": "file:///models/m"}, "replicas": 0, **spec},
    }


@pytest.fixture(scope="module", autouse=True)
def definition(cluster: Cluster) -> None:
    definition = custom_resource_definition()
    cluster.apply(definition)
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", f"crd/{definition['metadata']['name']}")


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace("operator") as name:
        yield name


@pytest.fixture
def account(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[OperatorAccount]:
    with operator_account(cluster, namespace, tmp_path) as account:
        yield account


@pytest.fixture
def operator(account: OperatorAccount, namespace: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    with running_operator(account, namespace, tmp_path / "operator.log") as process:
        yield process


@pytest.fixture
def wait(cluster: Cluster) -> Callable[[Callable[[], Any], str], Any]:
    return lambda condition, what: cluster.wait_until(condition, SECONDS, what)


Wait = Callable[[Callable[[], Any], str], Any]


def _is_current(cluster: Cluster, name: str, namespace: str) -> bool:
    found = cluster.get(KIND, name, namespace)
    return found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]


def _reconciled(cluster: Cluster, wait: Wait, name: str, namespace: str) -> None:
    wait(lambda: all(cluster.find(kind, name, namespace) for kind in CHILDREN), f"{name} has all its children")
    wait(lambda: _condition(cluster, name, namespace, "Ready")["status"] == "True", f"{name} is Ready")


def _condition(cluster: Cluster, name: str, namespace: str, condition: str) -> dict[str, Any]:
    conditions = cluster.get(KIND, name, namespace).get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == condition), {"status": "", "reason": "", "message": ""})


def _versions(cluster: Cluster, namespace: str) -> dict[str, str]:
    return {f"{kind}/{obj['metadata']['name']}": obj["metadata"]["resourceVersion"] for kind in (KIND, *CHILDREN) for obj in cluster.list(kind, namespace)}


def test_children_appear_and_belong_to_the_inference_deployment(cluster: Cluster, namespace: str, operator: OperatorProcess, wait: Wait):
    cluster.apply(_manifest("alpha", namespace))
    _reconciled(cluster, wait, "alpha", namespace)
    uid = cluster.get(KIND, "alpha", namespace)["metadata"]["uid"]
    for kind in CHILDREN:
        owner = cluster.get(kind, "alpha", namespace)["metadata"]["ownerReferences"][0]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (uid, True, True)
    metadata = cluster.get(KIND, "alpha", namespace)["metadata"]
    assert "finalizers" not in metadata and "annotations" not in metadata


@pytest.mark.case("C091")
def test_an_idle_object_and_a_restarted_operator_cause_no_writes(cluster: Cluster, account: OperatorAccount, namespace: str, tmp_path: Path, wait: Wait):
    with running_operator(account, namespace, tmp_path / "first.log", "--resync=1s"):
        for number in range(5):
            cluster.apply(_manifest(f"m{number}", namespace))
        for number in range(5):
            _reconciled(cluster, wait, f"m{number}", namespace)
    before, since = _versions(cluster, namespace), datetime.now(UTC)
    with running_operator(account, namespace, tmp_path / "second.log", "--resync=1s") as process:
        wait(lambda: process.num_reconciled >= 25, "all were looked at five times")
    assert _versions(cluster, namespace) == before
    assert [write for write in cluster.audit_writes(since, account.user) if write.resource != "leases"] == []


@pytest.mark.case("C094")
def test_an_object_of_somebody_else_is_left_as_it_is_and_told_of(cluster: Cluster, namespace: str, operator: OperatorProcess, wait: Wait):
    foreign = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "alpha", "namespace": namespace}, "spec": {"ports": [{"port": 1234}]}}
    cluster.apply(foreign)
    before = cluster.get("Service", "alpha", namespace)
    cluster.apply(_manifest("alpha", namespace))
    wait(lambda: _condition(cluster, "alpha", namespace, "SpecAccepted")["reason"] == "NameConflict", "the conflict is told")
    assert cluster.get("Service", "alpha", namespace) == before
    assert cluster.find("Deployment", "alpha", namespace) is not None
    cluster.delete("Service", "alpha", namespace)
    wait(lambda: _condition(cluster, "alpha", namespace, "SpecAccepted")["status"] == "True", "the conflict is over")


def test_what_somebody_changes_of_a_child_is_repaired(cluster: Cluster, namespace: str, operator: OperatorProcess, wait: Wait):
    cluster.apply(_manifest("alpha", namespace))
    _reconciled(cluster, wait, "alpha", namespace)
    cluster.patch(
        "Service", "alpha", namespace, {"spec": {"ports": [{"name": "http", "port": 81, "targetPort": "http"}]}, "metadata": {"labels": {"mine": "x"}}}
    )
    cluster.patch("Deployment", "alpha", namespace, {"spec": {"minReadySeconds": 77}})
    cluster.delete("NetworkPolicy", "alpha", namespace)
    wait(lambda: [port["port"] for port in cluster.get("Service", "alpha", namespace)["spec"]["ports"]] == [80], "the port is ours again")
    wait(lambda: cluster.get("Deployment", "alpha", namespace)["spec"]["minReadySeconds"] == 2, "minReadySeconds is ours again")
    wait(lambda: cluster.find("NetworkPolicy", "alpha", namespace), "the NetworkPolicy is back")
    assert cluster.get("Service", "alpha", namespace)["metadata"]["labels"]["mine"] == "x"


@pytest.mark.case("C090")
def test_a_deletion_leaves_nothing_with_and_without_an_operator(cluster: Cluster, account: OperatorAccount, namespace: str, tmp_path: Path, wait: Wait):
    with running_operator(account, namespace, tmp_path / "operator.log"):
        for name in ("with", "without"):
            cluster.apply(_manifest(name, namespace))
            _reconciled(cluster, wait, name, namespace)
        cluster.delete(KIND, "with", namespace)
        wait(lambda: not any(cluster.find(kind, "with", namespace) for kind in (KIND, *CHILDREN)), "nothing is left")
    cluster.delete(KIND, "without", namespace)
    wait(lambda: not any(cluster.find(kind, "without", namespace) for kind in (KIND, *CHILDREN)), "nothing is left without an operator")


def test_a_field_that_the_spec_no_longer_wants_goes(cluster: Cluster, namespace: str, operator: OperatorProcess, wait: Wait):
    template = {"spec": {"nodeSelector": {"disk": "ssd", "zone": "a"}, "imagePullSecrets": [{"name": "s1"}]}}
    cluster.apply(_manifest("alpha", namespace, podTemplate=template, network={"policy": "Restricted"}))
    _reconciled(cluster, wait, "alpha", namespace)
    cluster.apply(_manifest("alpha", namespace, podTemplate={"spec": {"nodeSelector": {"zone": "b"}}}, network={"policy": "None"}))
    wait(lambda: cluster.find("NetworkPolicy", "alpha", namespace) is None, "the NetworkPolicy is gone")
    wait(lambda: _pod_spec(cluster, "alpha", namespace)["nodeSelector"] == {"zone": "b"}, "the selector is the new one")
    assert "imagePullSecrets" not in _pod_spec(cluster, "alpha", namespace)


def _pod_spec(cluster: Cluster, name: str, namespace: str) -> dict[str, Any]:
    spec: dict[str, Any] = cluster.get("Deployment", name, namespace)["spec"]["template"]["spec"]
    return spec


def test_what_the_api_server_refuses_is_told_in_its_words_while_the_other_children_are_made(
    cluster: Cluster, namespace: str, operator: OperatorProcess, wait: Wait
):
    cluster.apply(_manifest("alpha", namespace, podTemplate={"spec": {"dnsPolicy": "Nonsense"}}))
    wait(lambda: "dnsPolicy" in _condition(cluster, "alpha", namespace, "SpecAccepted")["message"], "the refusal is told")
    assert cluster.find("Service", "alpha", namespace) and not cluster.find("Deployment", "alpha", namespace)
    cluster.patch(KIND, "alpha", namespace, {"spec": {"podTemplate": {"spec": {"dnsPolicy": "ClusterFirst"}}}})
    _reconciled(cluster, wait, "alpha", namespace)


def test_sigterm_ends_the_operator_and_a_standby_takes_over_at_once(cluster: Cluster, account: OperatorAccount, namespace: str, tmp_path: Path, wait: Wait):
    with running_operator(account, namespace, tmp_path / "first.log") as first:
        wait(lambda: "Holding the Lease" in first.log.read_text(), "the first one leads")
        with running_operator(account, namespace, tmp_path / "second.log") as second:
            wait(lambda: "Waiting for the Lease" in second.log.read_text(), "the second one waits")
            with urllib.request.urlopen(f"http://127.0.0.1:{second.port}/readyz", timeout=5) as response:
                assert (response.status, response.read().decode().partition(":")[0]) == (200, "standby")
            assert first.terminate() == 0
            wait(lambda: "Holding the Lease" in second.log.read_text(), "the second one leads")
            cluster.apply(_manifest("alpha", namespace))
            _reconciled(cluster, wait, "alpha", namespace)


@pytest.mark.parametrize("seconds", [0.0, 0.15, 0.3, 0.45])
def test_sigterm_ends_an_operator_whose_work_only_begins(operator: OperatorProcess, wait: Wait, seconds: float):
    wait(lambda: "Holding the Lease" in operator.log.read_text(), "it leads")
    time.sleep(seconds)
    assert operator.terminate() == 0


def test_an_operator_that_loses_its_lease_ends_with_a_failure(cluster: Cluster, operator: OperatorProcess, namespace: str, wait: Wait):
    wait(lambda: "Holding the Lease" in operator.log.read_text(), "it leads")
    cluster.patch(
        "Lease", "stoker-operator", namespace, {"spec": {"holderIdentity": "another", "renewTime": datetime.now(UTC).isoformat().replace("+00:00", "Z")}}
    )
    wait(lambda: operator.exit_code() is not None, "it has ended")
    assert operator.exit_code() == 1 and "is now held by another" in operator.log.read_text()


@pytest.mark.case("C092")
def test_connections_that_go_silent_delay_a_change_by_a_minute_at_most(cluster: Cluster, account: OperatorAccount, namespace: str, tmp_path: Path, wait: Wait):
    with silent_proxy(*account.server()) as proxy:
        account.go_through(proxy.port)
        with running_operator(account, namespace, tmp_path / "operator.log") as operator:
            cluster.apply(_manifest("alpha", namespace))
            _reconciled(cluster, wait, "alpha", namespace)
            proxy.silence()
            cluster.apply(_manifest("beta", namespace))
            cluster.wait_until(lambda: cluster.find("NetworkPolicy", "beta", namespace), 60, "the change is acted on")
            assert operator.exit_code() is None


@pytest.fixture
def stranger(cluster: Cluster) -> Iterator[None]:
    """kopf's kinds of peering, and an operator of somebody else that has claimed the default name with the highest priority."""
    kinds = [("kopf.dev", "ClusterKopfPeering", "Cluster"), ("kopf.dev", "KopfPeering", "Namespaced")]
    definitions = [_open_definition(*each) for each in kinds]
    cluster.apply(*definitions)
    try:
        for definition in definitions:
            cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", f"crd/{definition['metadata']['name']}")
        yield
    finally:
        for definition in definitions:
            cluster.delete("CustomResourceDefinition", definition["metadata"]["name"])


def _open_definition(group: str, kind: str, scope: str) -> dict[str, Any]:
    plural, schema = f"{kind.lower()}s", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    spec = {"group": group, "scope": scope, "names": names, "versions": [version]}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.{group}"}, "spec": spec}


@pytest.mark.case("C092")
def test_a_strangers_peering_of_the_default_name_is_no_matter(
    cluster: Cluster, stranger: None, account: OperatorAccount, namespace: str, tmp_path: Path, wait: Wait
):
    claim = {"priority": 2147483647, "lifetime": 3600, "lastseen": datetime.now(UTC).isoformat()}
    for kind, place in (("ClusterKopfPeering", {}), ("KopfPeering", {"namespace": namespace})):
        cluster.apply({"apiVersion": "kopf.dev/v1", "kind": kind, "metadata": {"name": "default", **place}, "status": {"somebody": claim}})
    with running_operator(account, namespace, tmp_path / "operator.log"):
        cluster.apply(_manifest("alpha", namespace))
        _reconciled(cluster, wait, "alpha", namespace)
        cluster.patch(KIND, "alpha", namespace, {"spec": {"rollout": {"minReadySeconds": 7}}})
        wait(lambda: cluster.get("Deployment", "alpha", namespace)["spec"]["minReadySeconds"] == 7, "the edit is acted on")
    assert [list(each["status"]) for each in (cluster.get("KopfPeering", "default", namespace), cluster.get("ClusterKopfPeering", "default"))] == [
        ["somebody"]
    ] * 2


@pytest.mark.case("C091", "C092")
def test_after_a_kill_the_next_operator_catches_up_within_a_minute_and_changes_only_what_changed(
    cluster: Cluster, account: OperatorAccount, namespace: str, tmp_path: Path, wait: Wait
):
    with running_operator(account, namespace, tmp_path / "first.log") as first:
        for name in ("alpha", "beta"):
            cluster.apply(_manifest(name, namespace))
            _reconciled(cluster, wait, name, namespace)
        first.kill()
    since = datetime.now(UTC)
    cluster.patch(KIND, "beta", namespace, {"spec": {"rollout": {"minReadySeconds": 7}}})
    with running_operator(account, namespace, tmp_path / "second.log"):
        cluster.wait_until(lambda: cluster.get("Deployment", "beta", namespace)["spec"]["minReadySeconds"] == 7, 60, "the change is acted on")
        wait(lambda: _is_current(cluster, "beta", namespace), "the status is current")
    children = [write for write in cluster.audit_writes(since, account.user) if write.resource not in ("leases", "events", "inferencedeployments")]
    assert [(write.resource, write.name) for write in children] == [("deployments", "beta")]
    assert not [write for write in cluster.audit_writes(since, account.user) if write.name == "alpha"]


def test_two_operators_that_want_different_things_do_not_storm_the_api_server(
    cluster: Cluster, account: OperatorAccount, namespace: str, tmp_path: Path, wait: Wait
):
    since = datetime.now(UTC)
    with (
        running_operator(account, namespace, tmp_path / "first.log", "--gateway-namespace=one", "--lease-name=one") as first,
        running_operator(account, namespace, tmp_path / "second.log", "--gateway-namespace=two", "--lease-name=two") as second,
    ):
        cluster.apply(_manifest("alpha", namespace))
        wait(lambda: "is there another operator?" in first.log.read_text() + second.log.read_text(), "the contest is told")
        policies = [write for write in cluster.audit_writes(since, account.user) if write.resource == "networkpolicies"]
        assert len(policies) <= 20
