"""Whether an object already is as desired, so that nothing is written."""

from typing import Any

from stoker_operator.kube_object import KubeObject
from stoker_operator.quantities import same_amount
from stoker_operator.resources.merge_keys import merge_key

_AMOUNTS = frozenset({"limits", "requests"})
"""Maps of quantities."""

_AMOUNT = frozenset({"divisor", "sizeLimit"})
"""Quantities."""


_ZERO_IS_ABSENT = frozenset({"hostIPC", "hostNetwork", "hostPID", "initialDelaySeconds", "minReadySeconds", "paused", "readOnly", "stdin", "stdinOnce", "tty"})
"""Fields that the API server leaves out of what it returns while they are false or 0; of other fields, absent means something else."""


def contains(desired: KubeObject, live: KubeObject) -> bool:
    """Whether `live` has all that `desired` has. More fields, and more of a list of named things, are others'."""
    return _holds("", desired, live)


def _holds(field: str, desired: Any, live: Any) -> bool:
    if live is None:
        return desired in ({}, [], "") or (field in _ZERO_IS_ABSENT and not desired)
    if type(desired) is dict:
        return isinstance(live, dict) and _holds_map(field, desired, live)
    if type(desired) is list:
        return isinstance(live, list) and _holds_list(field, desired, live)
    if field in _AMOUNT:
        return same_amount(desired, live)
    return type(desired) is type(live) and bool(desired == live)


def _holds_map(field: str, desired: KubeObject, live: KubeObject) -> bool:
    if field in _AMOUNTS:
        return all(name in live and same_amount(value, live[name]) for name, value in desired.items())
    return all(_holds(name, value, live.get(name)) for name, value in desired.items())


def _holds_list(field: str, desired: list[Any], live: list[Any]) -> bool:
    key = merge_key(field, [*desired, *live])
    if key is None:
        return len(desired) == len(live) and all(_holds("", one, other) for one, other in zip(desired, live, strict=True))
    return all(any(one[key] == other[key] and _holds("", one, other) for other in live) for one in desired)
