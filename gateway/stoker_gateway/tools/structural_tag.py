"""Structural tags: forms of text that are partly fixed and partly JSON by a schema, as xgrammar reads them."""

from typing import Any

import msgspec

Format = dict[str, Any]


def const(text: str) -> Format:
    return {"type": "const_string", "value": text}


def tag(begin: str, content: Format, end: str) -> Format:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def json_by(schema: dict[str, Any]) -> Format:
    return {"type": "json_schema", "json_schema": schema}


def sequence(*elements: Format) -> Format:
    return {"type": "sequence", "elements": list(elements)}


def calls(tags: list[Format], separator: str, *, many: bool) -> Format:
    """One of `tags`, or several."""
    return {"type": "tags_with_separator", "tags": tags, "separator": separator, "at_least_one": True, "stop_after_first": not many}


def either(*elements: Format) -> Format:
    return {"type": "or", "elements": list(elements)}


def structural_tag(form: Format) -> str:
    """As JSON text."""
    return msgspec.json.encode({"type": "structural_tag", "format": form}).decode()
