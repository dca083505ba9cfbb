"""Checks of StructuredOutputs that need no compiler: size, depth, and the shape of the JSON. Imports no torch."""

import re

import msgspec

from stoker_engine.errors import ParameterError
from stoker_engine.sampling_params import StructuredOutputs

MAX_CHARACTERS = 1 << 17
"""Of a schema, a grammar or a pattern: OpenAI's own limit for a schema's strings is 120,000."""
MAX_DEPTH = 64
"""Of JSON in JSON, and of brackets in brackets."""
MAX_CHOICES = 4096
MAX_AFTER_TOKEN_IDS = 64

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
"""Of JSON."""
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


def check_structured_outputs(wanted: StructuredOutputs) -> None:
    """Raises ParameterError, by the parameter that asked for it, for what is too large or too deep, or is no JSON where it has to be."""
    problem = _find_problem(wanted)
    if problem is not None:
        raise ParameterError(f"{wanted.parameter}: {problem}", wanted.parameter)


def _find_problem(wanted: StructuredOutputs) -> str | None:
    kind, value = wanted.kind, wanted.value
    if len(wanted.after_token_ids) > MAX_AFTER_TOKEN_IDS:
        return f"after_token_ids must have at most {MAX_AFTER_TOKEN_IDS} token ids, got {len(wanted.after_token_ids)}"
    if wanted.start_token_id is not None and not (wanted.after_token_ids and 0 <= wanted.start_token_id < 1 << 31):
        return f"start_token_id must be a token id beside after_token_ids, got {wanted.start_token_id}"
    if len(value) > MAX_CHARACTERS:
        return f"{kind} must have at most {MAX_CHARACTERS} characters, got {len(value)}"
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return f"{kind} is not valid Unicode: it has a lone surrogate at character {error.start}"
    if "\0" in value:
        return f"{kind} must not hold the character U+0000"
    if kind == "json_object":
        return "json_object must be true alone" if value else None
    if not value.strip() and kind != "regex":
        return f"{kind} must not be empty"
    depth = _depth(_STRING.sub("", value) if kind in _JSON_TYPES else value)
    if depth > MAX_DEPTH:
        return f"{kind} must be nested at most {MAX_DEPTH} deep, got {depth}"
    return _find_json_problem(kind, value) if kind in _JSON_TYPES else None


def _depth(text: str) -> int:
    """How many brackets are open at once."""
    depth = deepest = 0
    for character in text:
        if character in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif character in _CLOSING:
            depth = max(depth - 1, 0)
    return deepest


_JSON_TYPES: dict[str, tuple[object, str]] = {
    "json": (dict[str, msgspec.Raw] | bool, "a JSON schema: an object"),
    "choice": (list[str], "a list of strings"),
    "structural_tag": (dict[str, msgspec.Raw], "an object"),
}


def _find_json_problem(kind: str, value: str) -> str | None:
    expected, words = _JSON_TYPES[kind]
    try:
        content = msgspec.convert(msgspec.json.decode(value), expected) if kind == "choice" else msgspec.json.decode(value, type=expected)
    except (msgspec.DecodeError, RecursionError) as error:
        return f"{kind} must be {words}: {error}"
    if kind == "choice" and not (content and all(content) and len(content) <= MAX_CHOICES):
        return f"choice must have 1 to {MAX_CHOICES} strings, none of them empty, got {len(content)}"
    return None
