"""The pods of an InferenceDeployment: what is generated, and the spec's podTemplate over it."""

import math

from stoker_engine.config import LifecycleConfig, seconds
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import RESTARTED_AT_ANNOTATION, RUN_AS_ID
from stoker_operator.plan import STOP_SECONDS
from stoker_operator.resources.child import child_labels, selector_labels
from stoker_operator.resources.containers import api_container, engine_container, pre_stop_seconds
from stoker_operator.resources.context import Defaults
from stoker_operator.resources.overlay import overlay
from stoker_operator.resources.scheduling import scheduling
from stoker_operator.resources.volumes import pod_volumes
from stoker_operator.v1alpha1 import InferenceDeployment

SECURITY_CONTEXT: KubeObject = {
    "runAsNonRoot": True,
    "runAsUser": RUN_AS_ID,
    "runAsGroup": RUN_AS_ID,
    "fsGroup": RUN_AS_ID,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod_template(deployment: InferenceDeployment, defaults: Defaults) -> KubeObject:
    """Depends on these two alone. The label that selects the pods is not the user's to change."""
    spec = deployment.spec
    added = spec.pod_template.metadata
    annotations = {**({} if spec.restarted_at is None else {RESTARTED_AT_ANNOTATION: spec.restarted_at}), **added.annotations}
    metadata = {"labels": {**child_labels(deployment), **added.labels, **selector_labels(deployment)}}
    return {
        "metadata": {**metadata, **({"annotations": annotations} if annotations else {})},
        "spec": overlay(_pod_spec(deployment, defaults), spec.pod_template.spec),
    }


def grace_seconds(lifecycle: LifecycleConfig) -> int:
    """From the deletion of a pod to SIGKILL: the delay, the drain, and the end of both programs. Whole seconds, never too few."""
    drain = round(pre_stop_seconds(lifecycle) + seconds(lifecycle.drain_timeout), 3)
    return math.ceil(drain + STOP_SECONDS)


def _pod_spec(deployment: InferenceDeployment, defaults: Defaults) -> KubeObject:
    volumes = pod_volumes(deployment)
    return {
        "serviceAccountName": deployment.metadata.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": SECURITY_CONTEXT,
        "terminationGracePeriodSeconds": grace_seconds(deployment.spec.lifecycle),
        "initContainers": [engine_container(deployment, defaults, volumes)],
        "containers": [api_container(deployment, defaults, volumes)],
        "volumes": [volume.manifest for volume in volumes],
        **scheduling(deployment),
    }
