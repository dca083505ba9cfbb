"""All children of an InferenceDeployment."""

from collections.abc import Iterator

from stoker_operator.cluster_kinds import HTTP_ROUTE, INFERENCE_POOL, POD_MONITOR, ClusterKind
from stoker_operator.kube_object import KubeObject
from stoker_operator.resources.context import RenderContext
from stoker_operator.resources.deployment import build_deployment
from stoker_operator.resources.disruption_budget import build_disruption_budget
from stoker_operator.resources.http_route import build_http_route
from stoker_operator.resources.inference_pool import build_inference_pool
from stoker_operator.resources.network_policy import build_network_policy
from stoker_operator.resources.pod_monitor import build_pod_monitor
from stoker_operator.resources.service import build_service, build_service_account
from stoker_operator.v1alpha1 import InferenceDeployment


def render_children(deployment: InferenceDeployment, context: RenderContext) -> tuple[KubeObject, ...]:
    """In the order they are to be applied: a pod needs its ServiceAccount. What is there of ours and not among them has to go."""
    children = [
        build_service_account(deployment, context.uid),
        build_service(deployment, context.uid),
        build_deployment(deployment, context),
    ]
    if deployment.spec.availability.max_unavailable is not None:
        children.append(build_disruption_budget(deployment, context.uid))
    if deployment.spec.network.policy == "Restricted":
        children.append(build_network_policy(deployment, context))
    children += [child for kind, child in _extensions(deployment, context) if kind in context.extensions]
    return tuple(children)


def _extensions(deployment: InferenceDeployment, context: RenderContext) -> Iterator[tuple[ClusterKind, KubeObject]]:
    """What is wanted of kinds that a cluster may not know."""
    gateway_api = deployment.spec.gateway_api
    if deployment.spec.monitoring.pod_monitor:
        yield POD_MONITOR, build_pod_monitor(deployment, context.uid)
    if gateway_api.inference_pool is not None:
        yield INFERENCE_POOL, build_inference_pool(deployment, gateway_api.inference_pool, context.uid)
    if gateway_api.http_route is not None:
        yield HTTP_ROUTE, build_http_route(deployment, gateway_api.http_route, context)


def asked_for(deployment: InferenceDeployment) -> tuple[ClusterKind, ...]:
    """The kinds that a spec names and a cluster may not know; a PodMonitor is wanted by default, and missed by nobody."""
    gateway_api = deployment.spec.gateway_api
    wanted = {INFERENCE_POOL: gateway_api.inference_pool, HTTP_ROUTE: gateway_api.http_route}
    return tuple(kind for kind, config in wanted.items() if config is not None)
