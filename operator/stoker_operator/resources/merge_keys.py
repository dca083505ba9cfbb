"""Which lists of a manifest are lists of named things, and what names them."""

from collections.abc import Sequence
from typing import Any

_KEYS = {
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "readinessGates": "conditionType",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}


def merge_key(field: str, items: Sequence[Any]) -> str | None:
    """What names each of `items`, the list at `field`; None where a list is one value, or an item has no name."""
    key = _port_key(items) if field == "ports" else _KEYS.get(field)
    if key is None or not all(isinstance(item, dict) and isinstance(item.get(key), str | int) for item in items):
        return None
    return key


def _port_key(items: Sequence[Any]) -> str | None:
    """A container's ports are named by number, a Service's too; those of a NetworkPolicy's rule are one value and have no names."""
    if any(isinstance(item, dict) and "containerPort" in item for item in items):
        return "containerPort"
    return "port" if any(isinstance(item, dict) and "name" in item for item in items) else None
