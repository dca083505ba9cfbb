"""Where Prometheus finds the metrics, for clusters that have its operator."""

from stoker_operator.cluster_kinds import POD_MONITOR
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import HEALTH_PORT_NAME, HTTP_PORT_NAME, METRICS_PATH
from stoker_operator.resources.child import build_child, mark_desired, selector_labels
from stoker_operator.v1alpha1 import InferenceDeployment


def build_pod_monitor(deployment: InferenceDeployment, uid: str) -> KubeObject:
    endpoints = [{"port": name, "path": METRICS_PATH} for name in (HTTP_PORT_NAME, HEALTH_PORT_NAME)]
    spec = {"selector": {"matchLabels": selector_labels(deployment)}, "podMetricsEndpoints": endpoints}
    return mark_desired(build_child(POD_MONITOR, deployment, uid, {"spec": spec}))
