"""What a write changes, for its line in the log."""

from collections.abc import Iterator

from stoker_operator.kube_object import KubeObject
from stoker_operator.names import DESIRED_ANNOTATION
from stoker_operator.resources.containment import contains

MAX_PATHS = 8
"""A pod template of another version differs in dozens of fields; a few of them tell which it is."""


def changed_fields(desired: KubeObject, live: KubeObject) -> str:
    """The fields of `desired` that `live` has otherwise, such as `spec.replicas`."""
    paths = [path for path in _paths(desired, live, "") if DESIRED_ANNOTATION not in path] or ["a field that is no longer wanted"]
    more = f" and {len(paths) - MAX_PATHS} more" if len(paths) > MAX_PATHS else ""
    return ", ".join(paths[:MAX_PATHS]) + more


def _paths(desired: KubeObject, live: KubeObject, prefix: str) -> Iterator[str]:
    for name, value in desired.items():
        found = live.get(name)
        if contains({name: value}, {name: found}):
            continue
        if isinstance(value, dict) and isinstance(found, dict):
            yield from _paths(value, found, f"{prefix}{name}.")
        else:
            yield prefix + name
