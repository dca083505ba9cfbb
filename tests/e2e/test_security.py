"""What pods and the operator may do, on an API server that enforces it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes.dynamic.exceptions import ForbiddenError

from cluster.cluster import Cluster, Manifest
from deployed import Deployed, condition_of
from operated import Operated, answers, scripted
from recording_proxy import RecordingProxy, recording_proxy
from stoker_operator.cluster_kinds import EXTENSIONS
from stoker_operator.names import RUN_AS_ID
from stoker_operator.rbac import OWN_NAMESPACE, WATCHED_NAMESPACES, WHOLE_CLUSTER

SECONDS = 90.0
CHILDREN = ("ServiceAccount", "Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy")


def test_pods_run_where_the_restricted_standard_is_enforced_and_their_processes_can_do_nothing_else(cluster: Cluster, place: Operated) -> None:
    with pytest.raises(ForbiddenError, match="violates PodSecurity"):
        cluster.apply(_privileged_pod(place.namespace))
    with place.operator("operator", "--gateway-namespace=front"):
        model = place.apply("alpha", replicas=1, podTemplate=scripted({}))
        model.wait_ready()
        assert answers(model)
        for container in ("engine", "api"):
            for pid in cluster.container_pids(model.pod_names[0], place.namespace, container):
                assert _limits(pid) == {"Uid": str(RUN_AS_ID), "Gid": str(RUN_AS_ID), "CapEff": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}
        assert cluster.get("NetworkPolicy", "alpha", place.namespace)["spec"] == _policy(place.namespace)


def _privileged_pod(namespace: str) -> Manifest:
    container = {"name": "one", "image": "localhost/pause:1", "securityContext": {"privileged": True}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "privileged", "namespace": namespace}, "spec": {"containers": [container]}}


def _limits(pid: int) -> dict[str, str]:
    """Of a process, as the kernel has them."""
    found = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    return {name: found[name].split()[0] for name in ("Uid", "Gid", "CapEff", "NoNewPrivs", "Seccomp")}


def _policy(namespace: str) -> Manifest:
    """`http` from the gateway's namespace and their own, where the operator is, too; the engine's metrics from everywhere; names and HTTPS."""
    front = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "front"}}}
    return {
        "podSelector": {"matchLabels": {"stoker.dev/inference-deployment": "alpha"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {"from": [{"podSelector": {}}, front], "ports": [{"port": 8000, "protocol": "TCP"}]},
            {"ports": [{"port": 8001, "protocol": "TCP"}]},
        ],
        "egress": [{"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}, {"ports": [{"port": 443, "protocol": "TCP"}]}],
    }


NOT_ASKED = {
    # Asked by the API server itself, where it enforces who may block an owner's deletion.
    ("update", "inferencedeployments/finalizers", True),
    # This cluster does not know the kinds; any other child is treated alike.
    *((verb, kind.plural, True) for kind in EXTENSIONS for verb in ("get", "list", "watch", "create", "patch", "delete")),
}


def test_the_operator_uses_every_right_that_it_has_and_asks_for_no_other(cluster: Cluster, place: Operated) -> None:
    with recording_proxy(place.account.kubeconfig) as proxy, place.operator("operator", "--resync=5s"):
        _conflict(cluster, place)
        _repair_and_remove(cluster, place)
        _refuse_pods(cluster, place, proxy)
        _scale_in(cluster, place)
    assert [request for request in proxy.requests if request.status in (401, 403)] == []
    used = {(request.verb, request.resource, bool(request.namespace)) for request in proxy.requests}
    assert used == _granted()


def _granted() -> set[tuple[str, str, bool]]:
    """Verb, resource, and whether it is in a namespace."""
    rights = [(grant, True) for grant in (*WATCHED_NAMESPACES, *OWN_NAMESPACE)] + [(grant, False) for grant in WHOLE_CLUSTER]
    return {(verb, grant.resource, in_namespace) for grant, in_namespace in rights for verb in grant.verbs} - NOT_ASKED


def _conflict(cluster: Cluster, place: Operated) -> None:
    """All names of children are taken, by objects of others."""
    place.apply("donor").wait_ready()
    for kind in CHILDREN:
        found = cluster.get(kind, "donor", place.namespace)
        metadata = {"name": "taken", "namespace": place.namespace}
        spec = {"spec": {name: value for name, value in found["spec"].items() if name not in ("clusterIP", "clusterIPs")}} if "spec" in found else {}
        cluster.apply({"apiVersion": found["apiVersion"], "kind": kind, "metadata": metadata, **spec})
    taken = place.apply("taken")
    _wait(cluster, lambda: condition_of(taken.get(), "SpecAccepted").get("reason") == "NameConflict", "the names are taken")


def _repair_and_remove(cluster: Cluster, place: Operated) -> None:
    """Every child is changed by somebody; then fewer are wanted. A template that is refused for a while makes the same Event twice."""
    volume = {"name": "shelf", "persistentVolumeClaim": {"claimName": "shelf"}}
    model = place.apply("alpha", podTemplate={"spec": {"volumes": [volume]}})
    model.wait_ready()
    changes: dict[str, Manifest] = {
        "ServiceAccount": {"automountServiceAccountToken": True},
        "Service": {"spec": {"selector": {"stoker.dev/inference-deployment": "other"}}},
        "Deployment": {"spec": {"minReadySeconds": 77}},
        "PodDisruptionBudget": {"spec": {"maxUnavailable": 7}},
        "NetworkPolicy": {"spec": {"policyTypes": ["Ingress"]}},
    }
    for kind, change in changes.items():
        before = cluster.get(kind, "alpha", place.namespace).get("spec")
        cluster.patch(kind, "alpha", place.namespace, change)
        _wait(cluster, lambda kind=kind, before=before: cluster.get(kind, "alpha", place.namespace).get("spec") == before, f"the {kind} is repaired")
    _wait(cluster, lambda: not cluster.get("ServiceAccount", "alpha", place.namespace)["automountServiceAccountToken"], "the ServiceAccount is repaired")
    place.apply("alpha", availability={"maxUnavailable": None}, network={"policy": "None"}, podTemplate={"spec": {"dnsPolicy": "Nonsense"}})
    _wait(cluster, lambda: condition_of(model.get(), "SpecAccepted").get("status") == "False", "the template is refused")
    _wait(cluster, lambda: not cluster.find("NetworkPolicy", "alpha", place.namespace), "the NetworkPolicy is gone")
    place.apply("alpha", availability={"maxUnavailable": None}, network={"policy": "None"})
    model.wait_ready()
    _wait(cluster, lambda: not cluster.find("PodDisruptionBudget", "alpha", place.namespace), "the PodDisruptionBudget is gone")


def _refuse_pods(cluster: Cluster, place: Operated, proxy: RecordingProxy) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": place.namespace}, "spec": {"hard": {"pods": "0"}}}
    cluster.apply(quota)
    place.apply("beta", replicas=2, podTemplate=scripted({"default_reply": None, "tokens_per_second": 5}))
    _wait(cluster, lambda: any(request.resource == "replicasets" and request.verb == "patch" for request in proxy.requests), "pods are tried again")
    cluster.delete("ResourceQuota", "none", place.namespace)


def _scale_in(cluster: Cluster, place: Operated) -> None:
    """While a pod is busy."""
    model = Deployed(cluster, "beta", place.namespace)
    model.wait_ready()
    asked = {"model": "beta", "prompt": "Hello", "max_tokens": 500, "stream": True}
    with httpx.Client(trust_env=False, timeout=30) as client, client.stream("POST", f"{model.url}/v1/completions", json=asked) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("data:")
        model.scale(1)
        _wait(cluster, lambda: len(model.pods) == 1, "one pod goes")


def _wait(cluster: Cluster, condition: Callable[[], Any], what: str) -> None:
    cluster.wait_until(condition, SECONDS, what)
