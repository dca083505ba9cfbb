import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stoker_operator.kube_object import KubeObject
from stoker_operator.resources.children import render_children
from stoker_operator.resources.containment import contains
from stoker_operator.resources.context import Defaults, DeploymentStrategy, RenderContext
from stoker_operator.v1alpha1 import InferenceDeployment

MakeDeployment = Callable[..., InferenceDeployment]
RenderByKind = Callable[..., dict[str, KubeObject]]

TEMPLATE_INPUTS = "stoker.dev/template-inputs"
RENDERED_BY = "stoker.dev/rendered-by"
DESIRED = "stoker.dev/desired"
NEXT_DEFAULTS = Defaults(engine_image="stoker-engine:2", api_image="stoker-api:2", image_pull_policy="Always")


def render_deployment(deployment: InferenceDeployment, context: RenderContext) -> KubeObject:
    return next(child for child in render_children(deployment, context) if child["kind"] == "Deployment")


def test_the_children_come_in_the_order_in_which_they_need_each_other(render_by_kind: RenderByKind) -> None:
    kinds = ["ServiceAccount", "Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor"]
    assert list(render_by_kind()) == kinds


def test_every_child_is_named_labeled_and_owned(render_by_kind: RenderByKind) -> None:
    owner = {"apiVersion": "stoker.dev/v1alpha1", "kind": "InferenceDeployment", "name": "demo", "uid": "0123", "controller": True, "blockOwnerDeletion": True}
    for child in render_by_kind().values():
        metadata = child["metadata"]
        assert (metadata["name"], metadata["namespace"], metadata["ownerReferences"]) == ("demo", "team", [owner])
        assert metadata["labels"] == {
            "app.kubernetes.io/name": "stoker",
            "app.kubernetes.io/instance": "demo",
            "app.kubernetes.io/managed-by": "stoker-operator",
            "app.kubernetes.io/part-of": "stoker",
            "stoker.dev/inference-deployment": "demo",
        }


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ({"availability": {"maxUnavailable": None}}, "PodDisruptionBudget"),
        ({"network": {"policy": "None"}}, "NetworkPolicy"),
        ({"monitoring": {"podMonitor": False}}, "PodMonitor"),
    ],
)
def test_a_child_that_the_spec_does_not_want_is_not_made(render_by_kind: RenderByKind, spec: dict[str, Any], kind: str) -> None:
    assert set(render_by_kind()) - set(render_by_kind(**spec)) == {kind}


def test_a_cluster_that_knows_no_pod_monitors_gets_none(make_deployment: MakeDeployment, context: RenderContext) -> None:
    children = render_children(make_deployment(), replace(context, extensions=frozenset()))
    assert "PodMonitor" not in [child["kind"] for child in children]


def test_the_service_leads_to_the_api(render_by_kind: RenderByKind) -> None:
    spec = render_by_kind()["Service"]["spec"]
    assert spec["ports"] == [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}]
    assert spec["selector"] == {"stoker.dev/inference-deployment": "demo"}


def test_a_broken_replica_holds_up_no_node_drain(render_by_kind: RenderByKind) -> None:
    spec = render_by_kind(availability={"maxUnavailable": "30%"})["PodDisruptionBudget"]["spec"]
    assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == ("30%", "AlwaysAllow")


def test_the_network_policy_lets_in_who_serves_and_who_measures_and_lets_out_names_and_https(render_by_kind: RenderByKind) -> None:
    spec = render_by_kind()["NetworkPolicy"]["spec"]
    http, metrics = spec["ingress"]
    namespaces = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}} for name in ("gateways", "stoker-system")]
    assert http == {"from": [{"podSelector": {}}, *namespaces], "ports": [{"port": 8000, "protocol": "TCP"}]}
    assert metrics == {"ports": [{"port": 8001, "protocol": "TCP"}]}
    assert [[(port["port"], port["protocol"]) for port in rule["ports"]] for rule in spec["egress"]] == [[(53, "UDP"), (53, "TCP")], [(443, "TCP")]]
    assert spec["policyTypes"] == ["Ingress", "Egress"]


@pytest.mark.parametrize(
    ("endpoint", "ports"), [("http://collector:4318", [443, 4318]), ("https://a.example/v1", [443]), ("http://[::1]/x", [443, 80]), (None, [443])]
)
def test_traces_may_go_out_to_their_collector(render_by_kind: RenderByKind, endpoint: str | None, ports: list[int]) -> None:
    spec = render_by_kind(**({} if endpoint is None else {"api": {"otlpEndpoint": endpoint}}))["NetworkPolicy"]["spec"]
    assert [port["port"] for rule in spec["egress"][1:] for port in rule["ports"]] == ports


def test_a_namespace_is_let_in_once(make_deployment: MakeDeployment, context: RenderContext) -> None:
    children = render_children(make_deployment(), replace(context, gateway=replace(context.gateway, namespace="team"), operator_namespace="team"))
    (policy,) = [child for child in children if child["kind"] == "NetworkPolicy"]
    assert policy["spec"]["ingress"][0]["from"] == [{"podSelector": {}}]


def test_the_pod_monitor_scrapes_both_containers(render_by_kind: RenderByKind) -> None:
    endpoints = render_by_kind()["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert [(endpoint["port"], endpoint["path"]) for endpoint in endpoints] == [("http", "/metrics"), ("metrics", "/metrics")]


def test_a_removed_field_shows_in_the_annotation_though_the_rest_is_contained(render_by_kind: RenderByKind) -> None:
    live = copy.deepcopy(render_by_kind(paused=True)["Deployment"])
    desired = render_by_kind()["Deployment"]
    assert contains(desired["spec"], live["spec"])
    assert desired["metadata"]["annotations"][DESIRED] != live["metadata"]["annotations"][DESIRED]
    assert not contains(desired, live)


def test_the_deployment_says_how_a_change_reaches_the_pods(make_deployment: MakeDeployment, context: RenderContext) -> None:
    rollout = {"minReadySeconds": 9, "revisionHistoryLimit": 1, "progressDeadlineSeconds": 77}
    context = replace(context, strategy=DeploymentStrategy("RollingUpdate", "25%", 0))
    spec = render_deployment(make_deployment(replicas=3, paused=True, rollout=rollout), context)["spec"]
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}
    assert [spec[name] for name in ("replicas", "paused", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")] == [3, True, 9, 1, 77]


def test_recreate_has_no_numbers(make_deployment: MakeDeployment, context: RenderContext) -> None:
    spec = render_deployment(make_deployment(), replace(context, strategy=DeploymentStrategy("Recreate")))["spec"]
    assert spec["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize(("spec", "deadline"), [({"lifecycle": {"startupTimeout": "90s"}}, 390), ({"rollout": {"minReadySeconds": 2099}}, 2100)])
def test_a_rollout_may_take_a_start_and_five_minutes(render_by_kind: RenderByKind, spec: dict[str, Any], deadline: int) -> None:
    assert render_by_kind(**spec)["Deployment"]["spec"]["progressDeadlineSeconds"] == deadline


def test_another_operator_keeps_the_pods_as_they_are(make_deployment: MakeDeployment, context: RenderContext) -> None:
    deployment = make_deployment()
    live = render_deployment(deployment, context)
    live["spec"]["template"]["metadata"]["creationTimestamp"] = None
    upgraded = replace(context, rendered_by="later", defaults=NEXT_DEFAULTS, live=live)
    kept = render_deployment(deployment, upgraded)
    assert contains(kept, live)
    assert kept["metadata"]["annotations"][RENDERED_BY] == "now"
    assert render_deployment(deployment, replace(upgraded, live=kept)) == kept
    assert "creationTimestamp" not in kept["spec"]["template"]["metadata"]


def test_another_operator_makes_the_pods_anew_when_the_spec_changes(make_deployment: MakeDeployment, context: RenderContext) -> None:
    live = render_deployment(make_deployment(), context)
    upgraded = replace(context, rendered_by="later", defaults=NEXT_DEFAULTS, live=live)
    child = render_deployment(make_deployment(engine={"seed": 1}), upgraded)
    assert child["spec"]["template"]["spec"]["containers"][0]["image"] == "stoker-api:2"
    assert child["metadata"]["annotations"][RENDERED_BY] == "later"


def test_another_operator_scales_without_touching_the_pods(make_deployment: MakeDeployment, context: RenderContext) -> None:
    live = render_deployment(make_deployment(), context)
    child = render_deployment(make_deployment(replicas=3), replace(context, rendered_by="later", defaults=NEXT_DEFAULTS, live=live))
    assert (child["spec"]["replicas"], child["spec"]["template"]) == (3, live["spec"]["template"])


def test_the_same_operator_repairs_what_someone_changed_in_the_pods(make_deployment: MakeDeployment, context: RenderContext) -> None:
    deployment = make_deployment()
    desired = render_deployment(deployment, context)
    live = copy.deepcopy(desired)
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "other:1"
    repaired = render_deployment(deployment, replace(context, live=live))
    assert repaired == desired
    assert not contains(repaired, live)


def test_a_deployment_without_our_annotations_gets_our_pods(make_deployment: MakeDeployment, context: RenderContext) -> None:
    live = render_deployment(make_deployment(), context)
    live["metadata"]["annotations"] = {}
    child = render_deployment(make_deployment(), replace(context, rendered_by="later", defaults=NEXT_DEFAULTS, live=live))
    assert child["metadata"]["annotations"][RENDERED_BY] == "later"
    assert TEMPLATE_INPUTS in child["metadata"]["annotations"]


def test_rendering_twice_gives_the_same(make_deployment: MakeDeployment, context: RenderContext) -> None:
    deployment = make_deployment(uri="hf://org/name", accelerator={"count": 1})
    assert render_children(deployment, context) == render_children(deployment, context)
