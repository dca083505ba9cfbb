import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.cluster import Cluster
from stoker_operator.rbac import OWN_NAMESPACE, WATCHED_NAMESPACES, WHOLE_CLUSTER

ROOT = Path(__file__).parents[2]
CHART = str(ROOT / "charts" / "stoker")
INSTALL = ROOT / "manifests" / "install.yaml"


def render(cluster: Cluster, **values: object) -> list[dict[str, Any]]:
    return render_release(cluster, "stoker", "stoker", **values)


def render_release(cluster: Cluster, name: str, namespace: str, **values: object) -> list[dict[str, Any]]:
    options = [f"--set-json={name.replace('__', '.')}={json.dumps(value)}" for name, value in values.items()]
    text = cluster.helm("template", name, CHART, f"--namespace={namespace}", *options)
    return [one for one in yaml.safe_load_all(text) if one]


def of_kind(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in documents if one["kind"] == kind]


def test_the_chart_passes_lint(cluster: Cluster) -> None:
    assert "0 chart(s) failed" in cluster.helm("lint", CHART, "--strict")


def test_the_rendered_manifests_are_those_of_the_chart(cluster: Cluster) -> None:
    documents = [one for one in yaml.safe_load_all(INSTALL.read_text(encoding="utf-8")) if one]
    assert documents[1:] == render(cluster)


def test_the_operator_gets_the_rights_that_it_lists_and_no_more(cluster: Cluster) -> None:
    documents = render(cluster)
    (role,) = [one for one in of_kind(documents, "ClusterRole") if one["metadata"]["name"] == "stoker-stoker-operator"]
    granted = [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in role["rules"]]
    assert granted == [([one.kind.group], [one.resource], list(one.verbs)) for one in (*WATCHED_NAMESPACES, *WHOLE_CLUSTER)]
    (lease,) = of_kind(documents, "Role")
    assert [rule["verbs"] for rule in lease["rules"]] == [list(one.verbs) for one in OWN_NAMESPACE]


def test_with_namespaces_there_is_a_role_in_each_and_none_for_all(cluster: Cluster) -> None:
    documents = render(cluster, operator__namespaces=["a", "b"], operator__clusterRights=False, userRoles__enabled=False)
    assert sorted(one["metadata"]["namespace"] for one in of_kind(documents, "Role")) == ["a", "a", "b", "b", "stoker"]
    assert of_kind(documents, "ClusterRole") == []
    deployments = of_kind(documents, "Deployment")
    assert sorted(one["metadata"]["name"] for one in deployments) == ["stoker-gateway", "stoker-operator"]
    for deployment in deployments:
        arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        assert [one for one in arguments if one.startswith("--namespace=")] == ["--namespace=a", "--namespace=b"]


def test_without_a_gateway_nothing_of_it_is_installed(cluster: Cluster) -> None:
    assert not [one for one in render(cluster, gateway__enabled=False, monitoring__podMonitor=True) if "gateway" in one["metadata"]["name"]]


def test_a_gateway_that_scales_leaves_its_replicas_to_the_autoscaler(cluster: Cluster) -> None:
    documents = render(cluster, gateway__autoscaling__maxReplicas=5)
    (scaler,) = of_kind(documents, "HorizontalPodAutoscaler")
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 5)
    (deployment,) = [one for one in of_kind(documents, "Deployment") if one["metadata"]["name"] == scaler["spec"]["scaleTargetRef"]["name"]]
    assert "replicas" not in deployment["spec"]


def test_an_inference_deployment_of_the_values_is_passed_on_as_it_is(cluster: Cluster) -> None:
    spec = {"model": {"uri": "file:///models/a"}, "engine": {"maxModelLen": 512}}
    (found,) = of_kind(render(cluster, inferenceDeployments={"a": spec}), "InferenceDeployment")
    assert (found["metadata"]["name"], found["spec"]) == ("a", spec)


def test_a_misspelled_field_is_refused_before_anything_is_installed(cluster: Cluster) -> None:
    with pytest.raises(RuntimeError, match="modell"):
        render(cluster, inferenceDeployments={"a": {"modell": {"uri": "file:///models/a"}}})
    with pytest.raises(RuntimeError, match="replica"):
        render(cluster, operator__replica=2)


def test_the_definition_survives_an_uninstall_unless_told_otherwise(cluster: Cluster) -> None:
    (kept,) = of_kind(render(cluster), "CustomResourceDefinition")
    assert kept["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    (dropped,) = of_kind(render(cluster, crds__keep=False), "CustomResourceDefinition")
    assert "annotations" not in dropped["metadata"]
    assert of_kind(render(cluster, crds__enabled=False), "CustomResourceDefinition") == []


def test_releases_share_no_names_within_a_namespace_or_between_two(cluster: Cluster) -> None:
    options = {"crds__enabled": False, "monitoring__podMonitor": True, "operator__namespaces": ["models"], "gateway__autoscaling__maxReplicas": 3}
    releases = [render_release(cluster, name, namespace, **options) for name, namespace in (("a", "one"), ("b", "one"), ("a", "two"))]
    ids = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for release in releases for one in release]
    assert len(ids) > 30 and len(set(ids)) == len(ids)
