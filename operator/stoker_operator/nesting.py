"""Objects nested as deeply as the API server takes them: one of anybody's must not end the operator for all."""

import resource
import sys

MAX_JSON_DEPTH = 10_000
"""The API server takes no JSON that is nested more deeply."""

STACK_BYTES = 64 * 1024 * 1024
"""Reading and writing such JSON takes 4 to 8 MiB of a stack that is 8 MiB by default."""

MAX_SPEC_DEPTH = 64
"""No pod is nested more than 12 deep."""


def take_deep_objects() -> None:
    """Call it in the main thread, whose stack grows as far as the limit of the moment. Where less is allowed, all stays as it is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if hard != resource.RLIM_INFINITY and hard < STACK_BYTES:
        return
    if soft != resource.RLIM_INFINITY and soft < STACK_BYTES:
        resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, hard))
    sys.setrecursionlimit(max(sys.getrecursionlimit(), MAX_JSON_DEPTH + 2000))


def is_too_deep(value: object) -> bool:
    """Whether lists and maps are nested more than MAX_SPEC_DEPTH deep; without recursion."""
    level = [value]
    for _ in range(MAX_SPEC_DEPTH + 1):
        level = [item for each in level for item in _items(each)]
        if not level:
            return False
    return True


def _items(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
