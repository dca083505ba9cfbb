from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes.client.rest import ApiException

from cluster.cluster import Cluster, pod_security
from cluster.pause import IMAGE as PAUSE_IMAGE

USER = "admin"
PYTHON_IMAGE = "localhost/stoker-operator:dev"


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace("cluster", pod_security("restricted")) as name:
        yield name


@pytest.fixture
def waiting_pod(cluster: Cluster, namespace: str) -> dict[str, Any]:
    pod = paused_pod(namespace)
    cluster.apply(pod)
    cluster.wait_until(lambda: phase(cluster, namespace, "paused") == "Running", 60, "the pod runs")
    return pod


def paused_pod(namespace: str, name: str = "paused") -> dict[str, Any]:
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod_security_context = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "paused"}},
        "spec": {
            "containers": [{"name": "pause", "image": PAUSE_IMAGE, "imagePullPolicy": "IfNotPresent", "securityContext": security}],
            "securityContext": pod_security_context,
            "terminationGracePeriodSeconds": 1,
        },
    }


def phase(cluster: Cluster, namespace: str, pod: str) -> str:
    return str(cluster.get("Pod", pod, namespace).get("status", {}).get("phase"))


def test_every_node_is_ready(cluster: Cluster) -> None:
    conditions = [condition for node in cluster.nodes() for condition in node["status"]["conditions"] if condition["type"] == "Ready"]
    assert conditions
    assert {condition["status"] for condition in conditions} == {"True"}


def test_the_process_of_a_container_is_found(cluster: Cluster, namespace: str, waiting_pod: dict[str, Any]) -> None:
    assert cluster.container_pid("paused", namespace, "pause") > 1
    assert cluster.logs("paused", namespace, "pause") == ""


def test_a_service_has_a_name_and_the_address_of_its_pod(cluster: Cluster, namespace: str, waiting_pod: dict[str, Any]) -> None:
    service = {"metadata": {"name": "paused", "namespace": namespace}, "spec": {"selector": {"app": "paused"}, "ports": [{"port": 80}]}}
    cluster.apply({"apiVersion": "v1", "kind": "Service", **service})
    address = cluster.get("Pod", "paused", namespace)["status"]["podIP"]

    def endpoints() -> list[str]:
        slices = cluster.list("EndpointSlice", namespace, label_selector="kubernetes.io/service-name=paused")
        return [found for one in slices for endpoint in one.get("endpoints") or [] for found in endpoint["addresses"]]

    cluster.wait_until(lambda: endpoints() == [address], 30, "the Service has the pod's address")
    asking = paused_pod(namespace, "asking")
    asking["spec"] |= {"restartPolicy": "Never"}
    asking["spec"]["containers"][0] |= {
        "image": PYTHON_IMAGE,
        "command": ["python3", "-c", f"import socket; print(socket.gethostbyname('paused.{namespace}.svc'))"],
    }
    cluster.apply(asking)
    cluster.wait_until(lambda: phase(cluster, namespace, "asking") == "Succeeded", 60, "the pod found the Service's name")
    assert cluster.logs("asking", namespace, "pause").strip() == cluster.get("Service", "paused", namespace)["spec"]["clusterIP"]


def test_an_eviction_waits_for_the_disruption_budget(cluster: Cluster, namespace: str, second_node: str) -> None:
    for name in ("first", "second"):
        pod = paused_pod(namespace, name)
        pod["spec"]["nodeName"] = second_node
        cluster.apply(pod)
    budget = {"metadata": {"name": "paused", "namespace": namespace}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "paused"}}}}
    cluster.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **budget})

    def disruptions() -> int:
        return int(cluster.get("PodDisruptionBudget", "paused", namespace).get("status", {}).get("disruptionsAllowed", 0))

    cluster.wait_until(lambda: disruptions() == 1, 60, "both pods run and one may go")
    cluster.evict("first", namespace)
    with pytest.raises(ApiException, match="disruption budget") as refused:
        cluster.evict("second", namespace)
    assert refused.value.status == 429


def test_pod_security_refuses_a_privileged_pod(cluster: Cluster, namespace: str) -> None:
    pod = paused_pod(namespace)
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    with pytest.raises(ApiException, match="violates PodSecurity") as refused:
        cluster.apply(pod)
    assert refused.value.status == 403


def test_a_write_is_in_the_audit_log(cluster: Cluster, namespace: str) -> None:
    since = datetime.now(UTC)
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "written", "namespace": namespace}})
    cluster.get("ConfigMap", "written", namespace)
    found = [(write.verb, write.name, write.code) for write in cluster.audit_writes(since, USER) if write.resource == "configmaps"]
    assert found == [("patch", "written", 201)]


def test_devices_are_advertised_and_taken_back(cluster: Cluster) -> None:
    def allocatable() -> str:
        return str(cluster.nodes()[0]["status"]["allocatable"].get("stoker.dev/test-device", "none"))

    cluster.set_extended_resource("stoker.dev/test-device", 2)
    assert allocatable() == "2"
    cluster.set_extended_resource("stoker.dev/test-device", 0)
    assert allocatable() == "0"


def test_kubectl_and_helm_find_the_cluster(cluster: Cluster) -> None:
    assert "node/" in cluster.kubectl("get", "nodes", "-o", "name")
    with cluster.namespace("no-releases") as namespace:
        assert cluster.helm("list", f"--namespace={namespace}", "--short") == ""
    with pytest.raises(RuntimeError, match="not found"):
        cluster.kubectl("get", "configmap", "no-such-map")
