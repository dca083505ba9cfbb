"""Which fields of a status are ours, as the API server has them: conditions of other types are other writers'."""

from typing import Any

import msgspec

from stoker_operator.kube_object import KubeObject
from stoker_operator.status.conditions import OWN_TYPES
from stoker_operator.status_types import InferenceDeploymentStatus

OWN_FIELDS = frozenset(InferenceDeploymentStatus.__struct_encode_fields__)
CONDITIONS = "conditions"


def told_fields(status: InferenceDeploymentStatus) -> KubeObject:
    """What a status tells: a field that is not known is absent."""
    return _known(msgspec.to_builtins(status))


def is_told(told: KubeObject, live: KubeObject) -> bool:
    """Whether `live` has just what is told, besides what is not ours."""
    ours = {name: value for name, value in live.items() if name in OWN_FIELDS}
    return _by_type(told) == _by_type({CONDITIONS: [], **ours})


def leftovers(told: KubeObject, live: KubeObject) -> list[KubeObject]:
    """The JSON patch that takes out of `live` what is ours and not told. A server-side apply takes out only what was applied before."""
    ours = {name: value for name, value in live.items() if name in OWN_FIELDS and name != CONDITIONS}
    return [*_removals(told, ours, "/status"), *_condition_removals(told, live.get(CONDITIONS) or [])]


def _removals(told: KubeObject, live: KubeObject, path: str) -> list[KubeObject]:
    operations: list[KubeObject] = []
    for name, value in live.items():
        if name not in told:
            operations.append({"op": "remove", "path": f"{path}/{name}"})
        elif isinstance(value, dict) and isinstance(told[name], dict):
            operations += _removals(told[name], value, f"{path}/{name}")
    return operations


def _condition_removals(told: KubeObject, live: list[KubeObject]) -> list[KubeObject]:
    """From the last to the first, so that no index moves; the tests find out if another writer moved one."""
    wanted = {condition["type"] for condition in told[CONDITIONS]}
    operations: list[KubeObject] = []
    for index, condition in reversed(list(enumerate(live))):
        if condition["type"] in OWN_TYPES - wanted:
            path = f"/status/{CONDITIONS}/{index}"
            operations += [{"op": "test", "path": f"{path}/type", "value": condition["type"]}, {"op": "remove", "path": path}]
    return operations


def _by_type(status: KubeObject) -> KubeObject:
    """Conditions in any order; those of others left out."""
    return {**status, CONDITIONS: {condition["type"]: condition for condition in status[CONDITIONS] if condition["type"] in OWN_TYPES}}


def _known(fields: dict[str, Any]) -> KubeObject:
    return {name: _known(value) if isinstance(value, dict) else value for name, value in fields.items() if value is not None}
