"""An InferenceDeployment as the API server has it → the struct. What the CRD lets through and we cannot use is told by its field."""

import msgspec

from stoker_operator.errors import InvalidSpecError
from stoker_operator.kube_object import KubeObject
from stoker_operator.nesting import MAX_SPEC_DEPTH, is_too_deep
from stoker_operator.rules import RULES
from stoker_operator.status_types import MAX_CONDITIONS, InferenceDeploymentStatus
from stoker_operator.v1alpha1 import InferenceDeployment


def decode_inference_deployment(obj: KubeObject) -> InferenceDeployment:
    """Raises InvalidSpecError."""
    if is_too_deep(obj.get("spec")):
        raise InvalidSpecError(f"spec: it is nested more than {MAX_SPEC_DEPTH} deep, which no pod is; correct podTemplate.spec")
    metadata = obj["metadata"]
    own = {name: metadata[name] for name in ("name", "namespace", "labels", "annotations") if metadata.get(name)}
    value = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": own, "spec": obj.get("spec") or {}}
    try:
        deployment = msgspec.convert(value, InferenceDeployment)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at ")
        raise InvalidSpecError(f"{where.strip('`').removeprefix('$.') or 'the object'}: {text}; correct it") from error
    for rule in RULES:
        if not rule.holds(deployment):
            raise InvalidSpecError(f"{'.'.join(rule.path)}: {rule.message}")
    return deployment


def decode_status(obj: KubeObject) -> InferenceDeploymentStatus:
    """The status that stands in the object, without what of it cannot be read."""
    status = obj.get("status") or {}
    try:
        return msgspec.convert(status, InferenceDeploymentStatus)
    except msgspec.ValidationError:
        return msgspec.convert(_readable(status), InferenceDeploymentStatus)


def _readable(status: KubeObject) -> KubeObject:
    fields = {name: value for name, value in status.items() if name != "conditions" and _is_readable({name: value})}
    conditions = [each for each in status.get("conditions") or () if _is_readable({"conditions": [each]})]
    return {**fields, "conditions": conditions[:MAX_CONDITIONS]}


def _is_readable(status: KubeObject) -> bool:
    try:
        msgspec.convert(status, InferenceDeploymentStatus)
    except msgspec.ValidationError:
        return False
    return True
