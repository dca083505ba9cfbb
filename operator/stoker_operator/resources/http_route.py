"""How a Gateway of the cluster leads to the model."""

from stoker_operator.cluster_kinds import HTTP_ROUTE, INFERENCE_POOL
from stoker_operator.gateway_api import HttpRouteConfig, ParentReference
from stoker_operator.kube_object import KubeObject
from stoker_operator.resources.child import build_child, mark_desired
from stoker_operator.resources.context import RenderContext
from stoker_operator.v1alpha1 import InferenceDeployment

PARENT_KIND = "Gateway"
"""What routes are attached to."""


def build_http_route(deployment: InferenceDeployment, route: HttpRouteConfig, context: RenderContext) -> KubeObject:
    rule: KubeObject = {"backendRefs": [_backend(deployment, route, context)]}
    if route.model_header is not None:
        rule["matches"] = [{"headers": [{"type": "Exact", "name": route.model_header, "value": name}]} for name in _names(deployment, route)]
    if route.request_timeout:
        rule["timeouts"] = {"request": route.request_timeout}
    spec: KubeObject = {"parentRefs": [_parent(parent) for parent in route.parent_refs], "rules": [rule]}
    if route.hostnames:
        spec["hostnames"] = list(route.hostnames)
    return mark_desired(build_child(HTTP_ROUTE, deployment, context.uid, {"spec": spec}))


def _names(deployment: InferenceDeployment, route: HttpRouteConfig) -> list[str]:
    """What requests may call the model: Stoker's gateway knows it also by its namespace and name."""
    names = [deployment.served_name, *deployment.spec.model.aliases]
    if route.backend != INFERENCE_POOL.kind:
        names.append(f"{deployment.metadata.namespace}/{deployment.metadata.name}")
    return list(dict.fromkeys(names))


def _parent(parent: ParentReference) -> KubeObject:
    given = {"namespace": parent.namespace, "sectionName": parent.section_name, "port": parent.port}
    return {"group": HTTP_ROUTE.group, "kind": PARENT_KIND, "name": parent.name, **{name: value for name, value in given.items() if value is not None}}


def _backend(deployment: InferenceDeployment, route: HttpRouteConfig, context: RenderContext) -> KubeObject:
    if route.backend == INFERENCE_POOL.kind:
        return {"group": INFERENCE_POOL.group, "kind": INFERENCE_POOL.kind, "name": deployment.metadata.name}
    return {"group": "", "kind": "Service", "name": context.gateway.name, "namespace": context.gateway.namespace, "port": context.gateway.port}
