"""What a node drain may take of the replicas at once."""

from stoker_operator.cluster_kinds import POD_DISRUPTION_BUDGET
from stoker_operator.kube_object import KubeObject
from stoker_operator.resources.child import build_child, mark_desired, selector_labels
from stoker_operator.v1alpha1 import InferenceDeployment


def build_disruption_budget(deployment: InferenceDeployment, uid: str) -> KubeObject:
    """A replica that does not serve may always go: or a crash-looping one would hold up every node drain."""
    spec = {
        "maxUnavailable": deployment.spec.availability.max_unavailable,
        "selector": {"matchLabels": selector_labels(deployment)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return mark_desired(build_child(POD_DISRUPTION_BUDGET, deployment, uid, {"spec": spec}))
