"""All children of an InferenceDeployment, and those that it no longer wants."""

from stoker_operator.cluster_kinds import NETWORK_POLICY, POD_DISRUPTION_BUDGET, POD_MONITOR, ClusterKind
from stoker_operator.kube_object import KubeObject
from stoker_operator.resources.context import RenderContext
from stoker_operator.resources.deployment import build_deployment
from stoker_operator.resources.disruption_budget import build_disruption_budget
from stoker_operator.resources.network_policy import build_network_policy
from stoker_operator.resources.pod_monitor import build_pod_monitor
from stoker_operator.resources.service import build_service, build_service_account
from stoker_operator.v1alpha1 import InferenceDeployment


def render_children(deployment: InferenceDeployment, context: RenderContext) -> tuple[KubeObject, ...]:
    """In the order they are to be applied: a pod needs its ServiceAccount."""
    unwanted = unwanted_children(deployment)
    children = [
        build_service_account(deployment, context.uid),
        build_service(deployment, context.uid),
        build_deployment(deployment, context),
    ]
    if POD_DISRUPTION_BUDGET not in unwanted:
        children.append(build_disruption_budget(deployment, context.uid))
    if NETWORK_POLICY not in unwanted:
        children.append(build_network_policy(deployment, context))
    if POD_MONITOR not in unwanted and context.has_pod_monitors:
        children.append(build_pod_monitor(deployment, context.uid))
    return tuple(children)


def unwanted_children(deployment: InferenceDeployment) -> tuple[ClusterKind, ...]:
    """The kinds of which the spec wants none: what is there of ours has to go."""
    spec = deployment.spec
    wanted = {
        POD_DISRUPTION_BUDGET: spec.availability.max_unavailable is not None,
        NETWORK_POLICY: spec.network.policy == "Restricted",
        POD_MONITOR: spec.monitoring.pod_monitor,
    }
    return tuple(kind for kind, is_wanted in wanted.items() if not is_wanted)
