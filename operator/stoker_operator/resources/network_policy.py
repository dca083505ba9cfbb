"""Who may reach the pods, and whom they may reach."""

from urllib.parse import urlsplit

from stoker_operator.cluster_kinds import NETWORK_POLICY
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import HEALTH_PORT, HTTP_PORT, NAMESPACE_NAME_LABEL
from stoker_operator.resources.child import build_child, mark_desired, selector_labels
from stoker_operator.resources.context import RenderContext
from stoker_operator.v1alpha1 import InferenceDeployment

DNS_PORT = 53
HTTP_DEFAULT_PORT = 80
HTTPS_PORT = 443
"""Hubs, and stores of objects."""


def build_network_policy(deployment: InferenceDeployment, context: RenderContext) -> KubeObject:
    """Ports go by number: not every network plugin finds the named ports of a sidecar."""
    namespaces = dict.fromkeys((context.gateway.namespace, context.operator_namespace, *_proxy_namespaces(deployment)))
    clients = [{"podSelector": {}}, *(_namespace(name) for name in namespaces if name != deployment.metadata.namespace)]
    spec = {
        "podSelector": {"matchLabels": selector_labels(deployment)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": clients, "ports": [_port(HTTP_PORT)]}, {"ports": [_port(HEALTH_PORT)]}],
        "egress": [{"ports": [_port(DNS_PORT, "UDP"), _port(DNS_PORT)]}, *({"ports": [_port(port)]} for port in _ports_out(deployment))],
    }
    return mark_desired(build_child(NETWORK_POLICY, deployment, context.uid, {"spec": spec}))


def _proxy_namespaces(deployment: InferenceDeployment) -> list[str]:
    """Those of Gateways whose proxies reach the pods themselves."""
    route = deployment.spec.gateway_api.http_route
    parents = route.parent_refs if route is not None and route.backend == "InferencePool" else ()
    return [parent.namespace for parent in parents if parent.namespace is not None]


def _ports_out(deployment: InferenceDeployment) -> list[int]:
    """Besides DNS: hubs, and the collector of traces."""
    endpoint = deployment.spec.api.otlp_endpoint
    ports = [HTTPS_PORT]
    if endpoint is not None:
        url = urlsplit(endpoint)
        ports.append(url.port or (HTTPS_PORT if url.scheme == "https" else HTTP_DEFAULT_PORT))
    return list(dict.fromkeys(ports))


def _namespace(name: str) -> KubeObject:
    return {"namespaceSelector": {"matchLabels": {NAMESPACE_NAME_LABEL: name}}}


def _port(number: int, protocol: str = "TCP") -> KubeObject:
    return {"port": number, "protocol": protocol}
