"""A Kubernetes object as the API server has it: a manifest, and what is read of any of them."""

from typing import Any

KubeObject = dict[str, Any]
"""A manifest: JSON as Python has it. The only place of the operator where types are not checked."""


def kind(obj: KubeObject) -> str:
    return str(obj["kind"])


def name(obj: KubeObject) -> str:
    return str(obj["metadata"]["name"])


def namespace(obj: KubeObject) -> str:
    """Empty for an object of the cluster."""
    return str(obj["metadata"].get("namespace", ""))


def labels(obj: KubeObject) -> dict[str, str]:
    return dict(obj["metadata"].get("labels") or {})


def annotations(obj: KubeObject) -> dict[str, str]:
    return dict(obj["metadata"].get("annotations") or {})


def owner_uid(obj: KubeObject) -> str | None:
    """The uid of the object's controller; None if nothing controls it."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference["uid"])
    return None


def condition(obj: KubeObject, condition_type: str) -> KubeObject | None:
    """The condition of that type; None before anyone reported it."""
    conditions: list[KubeObject] = (obj.get("status") or {}).get("conditions") or []
    return next((found for found in conditions if found.get("type") == condition_type), None)
