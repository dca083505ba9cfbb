"""Structural tags: forms of text that are partly fixed and partly JSON by a schema, as xgrammar reads them."""

import enum
import re
from collections.abc import Mapping
from typing import Any

import msgspec

Format = dict[str, Any]

MAX_WHITESPACE = 8
"""Characters between two parts of JSON: without a limit, small models write spaces until their tokens are used up."""


class CallCount(enum.Enum):
    """How many calls a text may have."""

    ONE = enum.auto()
    MANY = enum.auto()


def const(text: str) -> Format:
    return {"type": "const_string", "value": text}


def tag(begin: str, content: Format, end: str) -> Format:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def json_by(schema: dict[str, Any]) -> Format:
    return {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": MAX_WHITESPACE}


def sequence(*elements: Format) -> Format:
    return {"type": "sequence", "elements": list(elements)}


def calls(tags: list[Format], separator: str, count: CallCount) -> Format:
    return {"type": "tags_with_separator", "tags": tags, "separator": separator, "at_least_one": True, "stop_after_first": count is CallCount.ONE}


def triggered(triggers: list[str], tags: list[Format], count: CallCount) -> Format:
    """Any text, in which a trigger begins one of `tags`, and with it what must follow; after the one call, where there is but one, the text ends."""
    return {"type": "triggered_tags", "triggers": triggers, "tags": tags, "at_least_one": False, "stop_after_first": count is CallCount.ONE}


def any_text() -> Format:
    return {"type": "any_text"}


def either(*elements: Format) -> Format:
    return {"type": "or", "elements": list(elements)}


def structural_tag(form: Format) -> str:
    """As JSON text."""
    return msgspec.json.encode({"type": "structural_tag", "format": form}).decode()


def with_tokens(form: Format, token_ids: Mapping[str, int]) -> Format:
    """The same form with those marks as tokens that are special tokens of the vocabulary: spelled by others, they are not what the model knows."""
    if not token_ids:
        return form
    match form["type"]:
        case "const_string":
            return sequence(*_pieces(form["value"], token_ids))
        case "sequence" | "or":
            return {**form, "elements": [with_tokens(element, token_ids) for element in form["elements"]]}
        case "optional":
            return {**form, "content": with_tokens(form["content"], token_ids)}
        case "tags_with_separator":
            return {**form, "tags": [_tag_with_tokens(element, token_ids) for element in form["tags"]]}
        case "tag":
            return _tag_with_tokens(form, token_ids)
        case "triggered_tags":
            return _triggered_with_tokens(form, token_ids)
    return form


def _tag_with_tokens(form: Format, token_ids: Mapping[str, int]) -> Format:
    """A tag begins with one text or token, and ends with one: what else is in its marks goes to its content."""
    begin, *after = _pieces(form["begin"], token_ids)
    *before, end = _pieces(form["end"], token_ids)
    content = with_tokens(form["content"], token_ids)
    content = sequence(*after, content, *before) if after or before else content
    return {**form, "begin": _mark(begin), "content": content, "end": _mark(end)}


def _triggered_with_tokens(form: Format, token_ids: Mapping[str, int]) -> Format:
    tags = [_tag_with_tokens(element, token_ids) for element in form["tags"]]
    tokens = [token_ids[trigger] for trigger in form["triggers"] if trigger in token_ids]
    if not tokens:
        return {**form, "tags": tags}
    return {"type": "token_triggered_tags", "trigger_tokens": tokens, "tags": tags, "at_least_one": False, "stop_after_first": form["stop_after_first"]}


def _mark(piece: Format) -> str | Format:
    return str(piece["value"]) if piece["type"] == "const_string" else piece


def _pieces(text: str, token_ids: Mapping[str, int]) -> list[Format]:
    pattern = "|".join(map(re.escape, token_ids))
    pieces = [piece for piece in re.split(f"({pattern})", text) if piece] or [""]
    return [{"type": "token", "token": token_ids[piece]} if piece in token_ids else const(piece) for piece in pieces]
