"""What JSON schemas may ask for: refuses keywords that the grammar compiler would leave out without a word, for then an output could break the schema."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_REFUSED = frozenset(
    """
    not if then else contains minContains maxContains dependentRequired dependentSchemas dependencies unevaluatedItems $dynamicRef $recursiveRef
    """.split()  # noqa: SIM905 - a list of them would be longer than a line
)
_ANNOTATIONS = frozenset(
    """
    $schema $id $comment $defs $anchor $vocabulary definitions title description default deprecated examples readOnly writeOnly contentEncoding
    contentMediaType discriminator nullable
    """.split()  # noqa: SIM905
)
_ALONE = ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
"""Keywords that the compiler takes by themselves: what stands beside them is left out."""
_KEYWORDS_BY_TYPE: dict[str, tuple[str, ...]] = {
    "object": ("properties", "additionalProperties", "patternProperties", "propertyNames", "required", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_TELLING = frozenset(("properties", "additionalProperties", "patternProperties", "items", "prefixItems"))
"""Keywords from which the compiler knows the type."""
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_ESCAPED = re.compile(r"\\[nrtfv0\\]|\\x[01]|\\u00[01]|\\c|[\x00-\x1f\"]|\\x22|\\x5[cC]|\\u0022|\\u005[cC]")
"""In a pattern: characters that JSON writes with a backslash, which the compiler would write as they are."""
_RANGE = re.compile(r"(\\?.)-(\\?[^\]])")


class SchemaError(ValueError):
    """The message says where in the schema, and what is not supported there."""


def check_schema(schema: Any, place: str = "#") -> None:
    """Raises SchemaError."""
    if not isinstance(schema, dict):
        return  # true and false are schemas, and what is none the compiler refuses
    for name in schema:
        if name in _REFUSED or (name == "uniqueItems" and schema[name] is True):
            raise SchemaError(f"{place}: {name} is not supported")
    for check in (_check_reference, _check_combination, _check_types, _check_object, _check_pattern):
        problem = check(schema)
        if problem is not None:
            raise SchemaError(f"{place}: {problem}")
    for name, subschema in _subschemas(schema):
        check_schema(subschema, f"{place}/{name}")


def check_tag_schemas(tag: Any, place: str = "#") -> None:
    """The same for every schema in a structural tag."""
    if isinstance(tag, list):
        for index, item in enumerate(tag):
            check_tag_schemas(item, f"{place}/{index}")
    elif isinstance(tag, dict):
        for name, value in tag.items():
            if name in ("json_schema", "schema"):
                check_schema(value, f"{place}/{name}")
            else:
                check_tag_schemas(value, f"{place}/{name}")


def _subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name in ("properties", "patternProperties", "$defs", "definitions"):
        if isinstance(schema.get(name), dict):
            yield from ((f"{name}/{key}", value) for key, value in schema[name].items())
    for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(schema.get(name), list):
            yield from ((f"{name}/{index}", value) for index, value in enumerate(schema[name]))
    for name in ("items", "additionalProperties", "propertyNames", "unevaluatedProperties"):
        if isinstance(schema.get(name), dict):
            yield name, schema[name]


def _check_reference(schema: Mapping[str, Any]) -> str | None:
    reference = schema.get("$ref")
    if reference is not None and not (reference == "#" or (isinstance(reference, str) and reference.startswith("#/"))):
        return f"$ref must point into the schema itself, by # or #/…, got {str(reference)[:100]!r}"
    return None


def _check_combination(schema: Mapping[str, Any]) -> str | None:
    alone = next((name for name in _ALONE if name in schema), None)
    if alone is None:
        return None
    names = {alone, "type"} if alone in ("const", "enum") else {alone}
    other = next((name for name in schema if name not in _ANNOTATIONS and name not in names), None)
    if other is not None:
        return f"{other} beside {alone} is not supported"
    if "type" not in schema:
        return None
    values = schema["enum"] if alone == "enum" else [schema["const"]]
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    fits = isinstance(values, list) and all(any(_is_of(value, name) for name in types) for value in values)
    return None if fits else f"{alone} has a value that is not of type {schema['type']}"


def _is_of(value: Any, name: object) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(name, str) and isinstance(value, _PYTHON_TYPES.get(name, ()))


def _check_types(schema: Mapping[str, Any]) -> str | None:
    if "type" in schema:
        return None
    for keywords in _KEYWORDS_BY_TYPE.values():
        present = [name for name in keywords if name in schema]
        if present and _TELLING.isdisjoint(present):
            return f"{present[0]} needs a type beside it"
    kinds = [kind for kind, keywords in _KEYWORDS_BY_TYPE.items() if any(name in schema for name in keywords)]
    return f"keywords for {' and '.join(kinds)} need a type beside them" if len(kinds) > 1 else None


def _check_object(schema: Mapping[str, Any]) -> str | None:
    required, properties = schema.get("required"), schema.get("properties", {})
    if isinstance(required, list) and isinstance(properties, dict):
        missing = next((name for name in required if name not in properties), None)
        if missing is not None:
            return f"required has {str(missing)[:100]!r}, which properties has not"
    least = schema.get("minProperties")
    if isinstance(least, int) and least > max(1, len(required) if isinstance(required, list) else 0) and schema.get("additionalProperties", True) is not False:
        return "minProperties of more than 1 needs additionalProperties false"
    return None


def _check_pattern(schema: Mapping[str, Any]) -> str | None:
    patterns = [schema.get("pattern"), *(schema["patternProperties"] if isinstance(schema.get("patternProperties"), dict) else ())]
    for pattern in patterns:
        if isinstance(pattern, str) and (_ESCAPED.search(pattern) or any(map(_spans_escaped, _RANGE.findall(pattern)))):
            return f"pattern {pattern[:100]!r} may match a quote, a backslash or a control character, which JSON escapes: that is not supported"
    return None


def _spans_escaped(ends: tuple[str, str]) -> bool:
    low, high = (end[-1] for end in ends)
    return any(low <= character <= high for character in '"\\\x1f')
