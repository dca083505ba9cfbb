"""How deep a body is nested: what walks it later, the chat template and the grammar compiler among it, calls itself once a level."""

from typing import Any

MAX_NESTING = 64
"""Lists and objects within each other. A tool's schema needs two or three levels for each of its own."""


def is_nested_too_deeply(body: bytes, parsed: Any) -> bool:
    """Level by level. A body with few brackets is not looked at: to count them costs a hundredth of making the values."""
    if body.count(b"[") + body.count(b"{") <= MAX_NESTING:
        return False
    level = [parsed]
    for _ in range(MAX_NESTING):
        level = [item for node in level for item in (node.values() if isinstance(node, dict) else node) if isinstance(item, list | dict)]
        if not level:
            return False
    return True
