"""What of a spec a pod template is made from, as a hash: while it stays the same, no replica restarts."""

from typing import Any

import msgspec

from stoker_operator.resources.stable_hash import stable_hash
from stoker_operator.v1alpha1 import InferenceDeployment

NO_ROLL = frozenset({"replicas", "rollout", "traffic", "availability", "network", "monitoring", "gatewayApi", "paused"})
"""Fields of the spec that no pod knows of."""


def template_inputs(deployment: InferenceDeployment) -> str:
    """Only what differs from the defaults counts, so that an operator with a new setting, or another default, changes no one's hash."""
    written = _written(deployment.spec)
    return stable_hash({name: value for name, value in written.items() if name not in NO_ROLL})


def _written(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = [(field, getattr(value, field.name)) for field in msgspec.structs.fields(value)]
        return {field.encode_name: _written(found) for field, found in fields if found != _default(field)}
    return [_written(item) for item in value] if isinstance(value, tuple) else value


def _default(field: msgspec.structs.FieldInfo) -> object:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
