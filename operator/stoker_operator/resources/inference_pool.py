"""The replicas as members of a pool, from which the endpoint picker of an inference gateway chooses."""

from stoker_operator.cluster_kinds import INFERENCE_POOL
from stoker_operator.gateway_api import InferencePoolConfig
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import HTTP_PORT
from stoker_operator.resources.child import build_child, mark_desired, selector_labels
from stoker_operator.v1alpha1 import InferenceDeployment


def build_inference_pool(deployment: InferenceDeployment, pool: InferencePoolConfig, uid: str) -> KubeObject:
    picker = pool.endpoint_picker_ref
    reference = {"group": "", "kind": "Service", "name": picker.name, "port": {"number": picker.port}, "failureMode": picker.failure_mode}
    spec = {"selector": {"matchLabels": selector_labels(deployment)}, "targetPorts": [{"number": HTTP_PORT}], "endpointPickerRef": reference}
    return mark_desired(build_child(INFERENCE_POOL, deployment, uid, {"spec": spec}))
