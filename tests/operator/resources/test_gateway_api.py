from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from stoker_engine.settings import in_schema
from stoker_operator.cluster_kinds import HTTP_ROUTE, INFERENCE_POOL, ClusterKind
from stoker_operator.gateway_api import Hostname, NamespaceName, SectionName
from stoker_operator.kube_object import KubeObject
from stoker_operator.resources.children import render_children
from stoker_operator.resources.context import RenderContext
from stoker_operator.v1alpha1 import InferenceDeployment

MakeDeployment = Callable[..., InferenceDeployment]
RenderByKind = Callable[..., dict[str, KubeObject]]

DEFINITIONS = Path(__file__).parents[1] / "gateway_api"
POOL: dict[str, Any] = {"endpointPickerRef": {"name": "picker"}}
ROUTE: dict[str, Any] = {"parentRefs": [{"name": "public", "namespace": "edge"}]}
FULL_ROUTE: dict[str, Any] = {
    "parentRefs": [{"name": "public", "namespace": "edge", "sectionName": "https", "port": 443}, {"name": "inner"}],
    "hostnames": ["chat.example.org", "*.models.example.org"],
    "modelHeader": "X-Gateway-Model-Name",
    "backend": "InferencePool",
    "requestTimeout": "1h30m",
}
FULL_POOL: dict[str, Any] = {"endpointPickerRef": {"name": "picker", "port": 9003, "failureMode": "FailOpen"}}


def schema_of(kind: ClusterKind) -> dict[str, Any]:
    """As published; a field that it does not declare is refused, where the API server would drop it."""
    definition = yaml.safe_load((DEFINITIONS / f"{kind.plural}.yaml").read_text())
    assert (definition["spec"]["group"], definition["spec"]["names"]["kind"], definition["spec"]["names"]["plural"]) == (kind.group, kind.kind, kind.plural)
    (version,) = [each for each in definition["spec"]["versions"] if each["name"] == kind.version and each["served"]]
    closed: dict[str, Any] = close(version["schema"]["openAPIV3Schema"])
    return closed


def close(node: Any) -> Any:
    if isinstance(node, list):
        return [close(each) for each in node]
    if not isinstance(node, dict):
        return node
    closed = {name: close(child) for name, child in node.items()}
    return closed | {"additionalProperties": False} if isinstance(node.get("properties"), dict) and node.get("type") == "object" else closed


@pytest.mark.parametrize(
    "spec",
    [
        {"httpRoute": ROUTE, "inferencePool": POOL},
        {"httpRoute": FULL_ROUTE, "inferencePool": FULL_POOL},
        {"httpRoute": ROUTE | {"requestTimeout": "", "modelHeader": "X-Model"}, "inferencePool": POOL},
    ],
)
def test_what_is_rendered_is_what_the_published_definitions_allow(render_by_kind: RenderByKind, spec: dict[str, Any]) -> None:
    children = render_by_kind(gatewayApi=spec, model={"aliases": ["org/other", "third"]})
    for kind in (HTTP_ROUTE, INFERENCE_POOL):
        child = children[kind.kind]
        assert child["apiVersion"] == kind.api_version
        jsonschema.validate(child, schema_of(kind))


def test_a_field_that_the_definition_does_not_have_is_found(render_by_kind: RenderByKind) -> None:
    child = render_by_kind(gatewayApi={"inferencePool": POOL})["InferencePool"]
    with pytest.raises(jsonschema.ValidationError, match="targetPortNumber"):
        jsonschema.validate({**child, "spec": {**child["spec"], "targetPortNumber": 8000}}, schema_of(INFERENCE_POOL))


def test_nothing_of_the_gateway_api_is_made_unless_it_is_asked_for(render_by_kind: RenderByKind) -> None:
    assert not {"HTTPRoute", "InferencePool"} & set(render_by_kind())


@pytest.mark.parametrize("known", [(), (HTTP_ROUTE,), (INFERENCE_POOL,)])
def test_only_kinds_that_the_cluster_knows_are_made(make_deployment: MakeDeployment, context: RenderContext, known: tuple[ClusterKind, ...]) -> None:
    deployment = make_deployment(gatewayApi={"httpRoute": ROUTE, "inferencePool": POOL})
    kinds = [child["kind"] for child in render_children(deployment, replace(context, extensions=frozenset(known)))]
    assert kinds == ["ServiceAccount", "Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy", *(kind.kind for kind in known)]


def test_a_route_leads_from_its_gateways_to_stokers_without_an_end_to_streams(render_by_kind: RenderByKind) -> None:
    spec = render_by_kind(gatewayApi={"httpRoute": ROUTE})["HTTPRoute"]["spec"]
    assert spec == {
        "parentRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public", "namespace": "edge"}],
        "rules": [
            {"backendRefs": [{"group": "", "kind": "Service", "name": "front", "namespace": "gateways", "port": 8080}], "timeouts": {"request": "0s"}},
        ],
    }


def test_a_route_may_lead_to_the_pool_for_each_of_the_models_names(render_by_kind: RenderByKind) -> None:
    spec = render_by_kind(gatewayApi={"httpRoute": FULL_ROUTE, "inferencePool": POOL}, model={"servedName": "org/name", "aliases": ["b"]})["HTTPRoute"]["spec"]
    (rule,) = spec["rules"]
    assert spec["hostnames"] == FULL_ROUTE["hostnames"]
    assert [parent.get("port") for parent in spec["parentRefs"]] == [443, None]
    assert rule["backendRefs"] == [{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "demo"}]
    names = [{"headers": [{"type": "Exact", "name": "X-Gateway-Model-Name", "value": name}]} for name in ("org/name", "b")]
    assert (rule["matches"], rule["timeouts"]) == (names, {"request": "1h30m"})


def test_a_route_to_stokers_gateway_matches_also_the_models_namespace_and_name(make_deployment: MakeDeployment, context: RenderContext) -> None:
    deployment = make_deployment(gatewayApi={"httpRoute": ROUTE | {"modelHeader": "X-Model"}}, model={"servedName": "org/name", "aliases": ["b"]})
    (route,) = [child for child in render_children(deployment, context) if child["kind"] == "HTTPRoute"]
    values = [match["headers"][0]["value"] for match in route["spec"]["rules"][0]["matches"]]
    assert values == ["org/name", "b", f"{deployment.metadata.namespace}/{deployment.metadata.name}"]


def test_the_time_of_a_request_may_be_left_to_the_gateway(render_by_kind: RenderByKind) -> None:
    (rule,) = render_by_kind(gatewayApi={"httpRoute": ROUTE | {"requestTimeout": ""}})["HTTPRoute"]["spec"]["rules"]
    assert "timeouts" not in rule


def test_a_pool_selects_the_pods_by_what_the_service_selects_them_by_at_the_port_that_serves(render_by_kind: RenderByKind) -> None:
    children = render_by_kind(gatewayApi={"inferencePool": POOL})
    spec, pod = children["InferencePool"]["spec"], children["Deployment"]["spec"]["template"]
    selected = spec["selector"]["matchLabels"]
    assert selected == children["Service"]["spec"]["selector"]
    assert selected.items() <= pod["metadata"]["labels"].items()
    (api,) = pod["spec"]["containers"]
    assert spec["targetPorts"] == [{"number": port["containerPort"]} for port in api["ports"]]
    assert spec["endpointPickerRef"] == {"group": "", "kind": "Service", "name": "picker", "port": {"number": 9002}, "failureMode": "FailClose"}


@pytest.mark.parametrize(("backend", "namespaces"), [("Gateway", ["gateways", "stoker-system"]), ("InferencePool", ["gateways", "stoker-system", "edge"])])
def test_proxies_that_reach_the_pods_themselves_are_let_in(render_by_kind: RenderByKind, backend: str, namespaces: list[str]) -> None:
    gateway_api = {"httpRoute": FULL_ROUTE | {"backend": backend}, "inferencePool": POOL}
    http, _ = render_by_kind(gatewayApi=gateway_api)["NetworkPolicy"]["spec"]["ingress"]
    assert [peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for peer in http["from"][1:]] == namespaces


def test_our_patterns_are_those_of_the_definition() -> None:
    spec = schema_of(HTTP_ROUTE)["properties"]["spec"]["properties"]
    parent = spec["parentRefs"]["items"]["properties"]
    published = {Hostname: spec["hostnames"]["items"], SectionName: parent["sectionName"], NamespaceName: parent["namespace"]}
    for ours, theirs in published.items():
        assert in_schema(msgspec.json.schema(ours)["pattern"]) == theirs["pattern"]
