"""What every child has: name, labels, owner, and the hash of what was applied."""

from stoker_operator.cluster_kinds import ClusterKind
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import API_VERSION, DESIRED_ANNOTATION, INFERENCE_DEPLOYMENT_LABEL, INSTANCE_LABEL, INSTANCE_LABELS, KIND
from stoker_operator.resources.stable_hash import stable_hash
from stoker_operator.v1alpha1 import InferenceDeployment


def selector_labels(deployment: InferenceDeployment) -> dict[str, str]:
    """What selects the pods; never changes, for a Deployment's selector cannot."""
    return {INFERENCE_DEPLOYMENT_LABEL: deployment.metadata.name}


def child_labels(deployment: InferenceDeployment) -> dict[str, str]:
    return {**INSTANCE_LABELS, INSTANCE_LABEL: deployment.metadata.name, **selector_labels(deployment)}


def build_child(kind: ClusterKind, deployment: InferenceDeployment, uid: str, content: KubeObject) -> KubeObject:
    """A child with `content` below its metadata."""
    metadata = {
        "name": deployment.metadata.name,
        "namespace": deployment.metadata.namespace,
        "labels": child_labels(deployment),
        "ownerReferences": [_owner_reference(deployment, uid)],
    }
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content}


def annotate(child: KubeObject, annotations: dict[str, str]) -> KubeObject:
    """`child` with annotations added."""
    metadata = child["metadata"]
    return {**child, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **annotations}}}


def mark_desired(child: KubeObject) -> KubeObject:
    """`child` with the hash of itself. Server-side apply removes a field that is not applied any more, but only if there is an apply."""
    return annotate(child, {DESIRED_ANNOTATION: stable_hash(child)})


def _owner_reference(deployment: InferenceDeployment, uid: str) -> KubeObject:
    name = deployment.metadata.name
    return {"apiVersion": API_VERSION, "kind": KIND, "name": name, "uid": uid, "controller": True, "blockOwnerDeletion": True}
