"""A partial PodSpec over a generated one, as a strategic merge: maps merge, lists of named things merge by name, null deletes, all else replaces."""

from typing import Any

from stoker_operator.kube_object import KubeObject
from stoker_operator.resources.merge_keys import merge_key

APPENDED = frozenset({"tolerations"})
"""Lists without names to which the overlay adds."""

WHOLE = frozenset({"env", "volumes"})
"""Named things that the overlay replaces: of two values, or two sources of a volume, the API server takes one."""

AHEAD = frozenset({"initContainers"})
"""New items stand before the generated ones unless the overlay names one of those before them: an init container puts there what the engine reads."""


def overlay(base: KubeObject, patch: KubeObject) -> KubeObject:
    """`base` with `patch` over it. Never raises: what is no pod the API server refuses in its own words."""
    result = dict(base)
    for field, value in patch.items():
        if value is None:
            result.pop(field, None)
        else:
            result[field] = _merge(field, result.get(field), value)
    return result


def _merge(field: str, base: Any, patch: Any) -> Any:
    if isinstance(patch, dict):
        return overlay(base if isinstance(base, dict) else {}, patch)
    if isinstance(base, list) and isinstance(patch, list):
        return _merge_lists(field, base, patch)
    return patch


def _merge_lists(field: str, base: list[Any], patch: list[Any]) -> list[Any]:
    if field in APPENDED:
        return [*base, *(item for item in patch if item not in base)]
    key = merge_key(field, [*base, *patch])
    return patch if key is None else _merge_named(field, key, base, patch)


def _merge_named(field: str, key: str, base: list[KubeObject], patch: list[KubeObject]) -> list[KubeObject]:
    merged = {item[key]: item for item in base}
    ahead: list[str | int] = []
    behind: list[str | int] = []
    new = ahead if field in AHEAD else behind
    for item in patch:
        name = item[key]
        if name not in merged:
            new.append(name)
        elif name not in (*ahead, *behind):
            new = behind
        merged[name] = overlay({} if field in WHOLE else merged.get(name, {}), item)
    return [merged[name] for name in (*ahead, *(item[key] for item in base), *behind)]
