"""The replicas' one address in the cluster, and the account that their pods run as."""

from stoker_operator.cluster_kinds import SERVICE, SERVICE_ACCOUNT
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import HTTP_PORT_NAME, SERVICE_PORT
from stoker_operator.resources.child import build_child, mark_desired, selector_labels
from stoker_operator.v1alpha1 import InferenceDeployment


def build_service(deployment: InferenceDeployment, uid: str) -> KubeObject:
    port = {"name": HTTP_PORT_NAME, "port": SERVICE_PORT, "targetPort": HTTP_PORT_NAME, "protocol": "TCP"}
    return mark_desired(build_child(SERVICE, deployment, uid, {"spec": {"selector": selector_labels(deployment), "ports": [port]}}))


def build_service_account(deployment: InferenceDeployment, uid: str) -> KubeObject:
    """May do nothing; pods get no token of it."""
    return mark_desired(build_child(SERVICE_ACCOUNT, deployment, uid, {"automountServiceAccountToken": False}))
