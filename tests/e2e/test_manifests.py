import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cluster.cluster import Cluster, Manifest, pod_security
from stoker_operator.names import FIELD_MANAGER
from stoker_operator.resources.children import render_children
from stoker_operator.resources.containment import contains
from stoker_operator.resources.context import Defaults, DeploymentStrategy, GatewayAddress, RenderContext
from stoker_operator.v1alpha1 import InferenceDeployment

OWNER = "owner"
RESTRICTED = {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False}
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "downloaded": {
        "model": {"uri": "hf://org/name", "credentialsSecretRef": {"name": "hub"}},
        "cache": {"type": "PersistentVolumeClaim", "claimName": "weights"},
        "sharedMemory": {"sizeLimit": "1024Mi"},
    },
    "cached in the pod": {"model": {"uri": "hf://org/name"}, "cache": {"sizeLimit": 1073741824}},
    "accelerated": {
        "accelerator": {"count": 2, "product": ["A", "B"]},
        "engine": {"resources": {"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"memory": 2147483648}}},
        "api": {"resources": {"requests": {"cpu": 1}}},
    },
    "by claims": {
        "model": {"uri": "pvc://weights/a"},
        "accelerator": {"count": 1, "resourceClaimTemplateName": "gpu"},
        "rollout": {"strategy": "Recreate"},
        "paused": True,
    },
    "with its own environment": {
        "engine": {
            "env": [
                {"name": "EMPTY", "value": ""},
                {"name": "LIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1000m"}}},
                {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "a", "optional": True}}},
            ]
        }
    },
    "with its own pods": {
        "availability": {"maxUnavailable": "25%"},
        "lifecycle": {"preStopDelay": "0s", "drainTimeout": "90ms"},
        "podTemplate": {
            "metadata": {"annotations": {"team": "a"}},
            "spec": {
                "hostNetwork": False,
                "hostPID": False,
                "priorityClassName": "",
                "imagePullSecrets": [{"name": "s1"}],
                "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 0, "effect": "NoExecute"}],
                "initContainers": [{"name": "download", "image": "a", "securityContext": RESTRICTED}],
                "containers": [
                    {"name": "api", "tty": False, "ports": [{"containerPort": 9}], "readinessProbe": {"initialDelaySeconds": 0, "successThreshold": 1}},
                    {
                        "name": "proxy",
                        "image": "b",
                        "securityContext": RESTRICTED,
                        "resources": {"requests": {"cpu": 0.1}},
                    },
                ],
            },
        },
    },
}

Render = Callable[[dict[str, Any]], tuple[Manifest, ...]]


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace("manifests", pod_security("restricted")) as name:
        yield name


@pytest.fixture(scope="module")
def context(cluster: Cluster, namespace: str) -> RenderContext:
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": OWNER, "namespace": namespace}})
    return RenderContext(
        uid=cluster.get("ConfigMap", OWNER, namespace)["metadata"]["uid"],
        defaults=Defaults("stoker-engine:1", "stoker-api:1", "IfNotPresent"),
        gateway=GatewayAddress("stoker-gateway", "gateways", 80),
        operator_namespace="stoker-system",
        rendered_by="now",
        strategy=DeploymentStrategy("RollingUpdate", "25%", 0),
    )


@pytest.fixture(scope="module")
def render(namespace: str, context: RenderContext) -> Callable[..., tuple[Manifest, ...]]:
    """Owned by a ConfigMap: no operator of this cluster takes part, and the garbage collector leaves them alone."""

    def render(spec: dict[str, Any], name: str = "shown", **changes: Any) -> tuple[Manifest, ...]:
        metadata = {"name": name, "namespace": namespace}
        spec = {"model": {"uri": "file:///models/a"}, "replicas": 0, **spec}
        manifest = {"apiVersion": "stoker.dev/v1alpha1", "kind": "InferenceDeployment", "metadata": metadata, "spec": spec}
        strategy = DeploymentStrategy("Recreate") if spec.get("rollout") else context.strategy
        children = render_children(msgspec.convert(manifest, InferenceDeployment), replace(context, strategy=strategy, **changes))
        for child in children:
            (reference,) = child["metadata"]["ownerReferences"]
            reference |= {"apiVersion": "v1", "kind": "ConfigMap", "name": OWNER}
        return children

    return render


def read(cluster: Cluster, child: Manifest) -> Manifest:
    return cluster.get(child["kind"], child["metadata"]["name"], child["metadata"]["namespace"])


def without_status(obj: Manifest) -> Manifest:
    """What an apply may change; controllers report meanwhile."""
    metadata = {name: value for name, value in obj["metadata"].items() if name not in ("annotations", "managedFields", "resourceVersion")}
    return {**obj, "metadata": metadata, "status": None}


def deployment_of(children: tuple[Manifest, ...]) -> Manifest:
    return next(child for child in children if child["kind"] == "Deployment")


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_what_was_applied_is_found_so_and_applying_it_again_writes_nothing(cluster: Cluster, render: Render, spec: dict[str, Any]) -> None:
    for child in render(spec):
        cluster.apply(child, field_manager=FIELD_MANAGER)
        live = read(cluster, child)
        assert contains(child, live), child["kind"]
        cluster.apply(child, field_manager=FIELD_MANAGER)
        assert without_status(read(cluster, child)) == without_status(live)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_the_pods_are_admitted_where_pod_security_is_restricted(cluster: Cluster, namespace: str, render: Render, tmp_path: Path, spec: dict[str, Any]) -> None:
    children = render(spec)
    cluster.apply(children[0], field_manager=FIELD_MANAGER)
    pod = {**deployment_of(children)["spec"]["template"], "apiVersion": "v1", "kind": "Pod"}
    pod["metadata"] = {**pod["metadata"], "name": "tried", "namespace": namespace}
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(pod))
    assert "created" in cluster.kubectl("create", "-f", str(file), "--dry-run=server")


@pytest.mark.case("C087")
def test_what_leaves_the_spec_leaves_the_pods_and_what_others_added_stays(cluster: Cluster, namespace: str, render: Render) -> None:
    def spec(secret: str, selector: dict[str, str], variables: str, **more: Any) -> dict[str, Any]:
        env = [{"name": name, "value": "1"} for name in variables]
        return {"engine": {"env": env}, "podTemplate": {"spec": {"imagePullSecrets": [{"name": secret}], "nodeSelector": selector, **more}}}

    before = spec("s1", {"disk": "ssd", "zone": "a"}, "AB", tolerations=[{"key": "gpu", "operator": "Exists"}])
    after = spec("s2", {"zone": "b"}, "B")
    cluster.apply(*render(before, "changed"), field_manager=FIELD_MANAGER)
    added = {"metadata": {"annotations": {"theirs": "1"}}, "spec": {"template": {"spec": {"containers": [{"name": "sidecar", "image": "theirs"}]}}}}
    theirs = {"apiVersion": "apps/v1", "kind": "Deployment", **added}
    theirs["metadata"] = {**added["metadata"], "name": "changed", "namespace": namespace}
    cluster.apply(theirs, field_manager="theirs")
    desired = deployment_of(render(after, "changed"))
    cluster.apply(desired, field_manager=FIELD_MANAGER)
    live = cluster.get("Deployment", "changed", namespace)
    pod = live["spec"]["template"]["spec"]
    assert (pod["imagePullSecrets"], pod["nodeSelector"], pod.get("tolerations")) == ([{"name": "s2"}], {"zone": "b"}, None)
    assert [variable["name"] for variable in pod["initContainers"][0]["env"]][-2:] == ["HOME", "B"]
    assert [container["name"] for container in pod["containers"]] == ["api", "sidecar"]
    assert live["metadata"]["annotations"]["theirs"] == "1"
    assert contains(desired, live)


def test_a_field_that_is_no_longer_wanted_is_removed(cluster: Cluster, namespace: str, render: Render) -> None:
    for spec in ({"paused": True}, {}):
        (desired,) = [child for child in render(spec, "resumed") if child["kind"] == "Deployment"]
        before = cluster.find("Deployment", "resumed", namespace)
        assert before is None or not contains(desired, before)
        cluster.apply(desired, field_manager=FIELD_MANAGER)
    assert "paused" not in cluster.get("Deployment", "resumed", namespace)["spec"]


def test_an_upgraded_operator_leaves_the_pods_and_their_generation_alone(cluster: Cluster, namespace: str, render: Render) -> None:
    cluster.apply(deployment_of(render(SPECS["accelerated"], "kept")), field_manager=FIELD_MANAGER)
    live = cluster.get("Deployment", "kept", namespace)
    defaults = Defaults("stoker-engine:2", "stoker-api:2", "Always")
    desired = deployment_of(render(SPECS["accelerated"], "kept", live=live, rendered_by="later", defaults=defaults))
    assert contains(desired, live)
    cluster.apply(desired, field_manager=FIELD_MANAGER)
    assert cluster.get("Deployment", "kept", namespace)["metadata"]["generation"] == live["metadata"]["generation"]
