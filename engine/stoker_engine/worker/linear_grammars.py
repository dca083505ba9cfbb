"""is_linear: which structured outputs can be followed where others wait, because no token of theirs takes long."""

import json
from typing import Any

from stoker_engine.sampling_params import StructuredOutputs

MAX_ALTERNATIVES = 64
"""Of schemas, tags and texts that an output may follow at once: with as many, a token of 64 characters takes 2 ms; with 300, 60 ms."""
_ALWAYS = ("json_object", "choice")
_OF_JSON = ("json", "structural_tag")
_LISTS = frozenset(("anyOf", "oneOf", "allOf", "type", "elements", "tags"))
"""Keys whose lists are alternatives, or parts that may be empty."""
_OPEN_TYPES = frozenset(("any_text", "any_tokens", "optional"))
"""Parts of a tag of which it is not certain where they end."""
_TYPES = _OPEN_TYPES | frozenset(
    """
    object array string number integer boolean null
    structural_tag const_string json_schema token exclude_token sequence or tag triggered_tags token_triggered_tags tags_with_separator
    """.split()  # noqa: SIM905 - a list of them would be longer than a line
)
"""Schemas' and tags'. Others, as regex, grammar and star, can be ambiguous: a token takes the longer, the longer the output is."""


def is_linear(wanted: StructuredOutputs) -> bool:
    """Whether each character takes about as long as the one before, and few alternatives are open at once. `wanted` has passed its checks."""
    if wanted.kind in _ALWAYS:
        return True
    if wanted.kind not in _OF_JSON:
        return False
    count = _Alternatives()
    try:
        json.loads(wanted.value, object_pairs_hook=count.add)
    except (ValueError, RecursionError):  # a number of too many digits
        return False
    return count.may_be_counted and count.number <= MAX_ALTERNATIVES


class _Alternatives:
    """Sees every object of a JSON text, with all its pairs: whoever reads it otherwise may take the first or the last of two of a name."""

    def __init__(self) -> None:
        self.number = 0
        self.may_be_counted = True

    def add(self, pairs: list[tuple[str, Any]]) -> None:
        for key, value in pairs:
            if isinstance(value, list) and key in _LISTS:
                self.number += len(value)
            elif isinstance(value, str):
                self._add_text(key, value)
            elif key == "patternProperties":
                self.may_be_counted = False

    def _add_text(self, key: str, value: str) -> None:
        if key == "type":
            self.number += value in _OPEN_TYPES
            self.may_be_counted &= value in _TYPES
        elif key == "pattern":  # a property of that name has a schema, which is no text
            self.may_be_counted = False
