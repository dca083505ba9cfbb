from typing import Any

import pytest

from stoker_engine.worker.json_schema_checks import SchemaError, check_schema, check_tag_schemas

INTEGER = {"type": "integer"}


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object", "properties": {"not": INTEGER, "if": {"type": "string"}}, "required": ["not"]},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/a", "description": "the reference's own words"}}, "$defs": {"a": INTEGER}},
        {"type": "string", "enum": ["a", "b"], "title": "words"},
        {"type": ["string", "null"], "enum": ["a", None]},
        {"type": "integer", "enum": [1, 2.0]},
        {"type": ["integer", "number"], "const": 1.5},
        {"anyOf": [INTEGER, {"type": "null"}], "default": None, "description": "optional"},
        {"type": "array", "items": INTEGER, "uniqueItems": False},
        {"type": "string", "pattern": r"^[a-z0-9_]+@[A-Z]{2,3}\.\d+$"},
        {"properties": {"a": INTEGER}, "required": ["a"]},
        {"type": "object", "minProperties": 1},
    ],
)
def test_a_schema_of_what_the_compiler_honors_is_taken(schema: Any) -> None:
    check_schema(schema)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "array", "items": INTEGER, "uniqueItems": True}, "#: uniqueItems is not supported"),
        ({"type": "object", "properties": {"a": {"not": INTEGER}}}, "#/properties/a: not is not supported"),
        ({"anyOf": [INTEGER, {"type": "array", "contains": INTEGER}]}, "#/anyOf/1: contains is not supported"),
        ({"type": "array", "items": {"if": INTEGER}}, "#/items: if is not supported"),
        ({"$defs": {"a": {"dependentRequired": {}}}}, "#/$defs/a: dependentRequired is not supported"),
        ({"$ref": "http://127.0.0.1/schema"}, "#: $ref must point into the schema itself, by # or #/…, got 'http://127.0.0.1/schema'"),
        ({"$ref": "#/$defs/a", "minimum": 3, "$defs": {"a": INTEGER}}, "#: minimum beside $ref is not supported"),
        ({"type": "object", "anyOf": [{"required": ["a"]}]}, "#: type beside anyOf is not supported"),
        ({"type": "integer", "enum": [1, "x"]}, "#: enum has a value that is not of type integer"),
        ({"type": "integer", "enum": [1.5]}, "#: enum has a value that is not of type integer"),
        ({"type": [{}], "const": 1}, "#: const has a value that is not of type [{}]"),
        ({"type": "integer", "const": True}, "#: const has a value that is not of type integer"),
        ({"type": "string", "enum": ["a"], "minLength": 1}, "#: minLength beside enum is not supported"),
        ({"minimum": 3}, "#: minimum needs a type beside it"),
        ({"properties": {}, "items": {}}, "#: keywords for object and array need a type beside them"),
        ({"type": "object", "required": ["a"]}, "#: required has 'a', which properties has not"),
        ({"type": "object", "minProperties": 2}, "#: minProperties of more than 1 needs additionalProperties false"),
    ],
)
def test_what_the_compiler_would_leave_out_is_refused_by_place_and_name(schema: Any, message: str) -> None:
    with pytest.raises(SchemaError) as error:
        check_schema(schema)
    assert str(error.value) == message


@pytest.mark.parametrize("pattern", ['"', r"\\", r"\n", "[ -~]", "[!-z]", "[A-z]", r"\x22", r"[\x00-a]", "\t", r"[\t-\r]"])
def test_a_pattern_that_may_match_what_json_escapes_is_refused(pattern: str) -> None:
    with pytest.raises(SchemaError, match="which JSON escapes"):
        check_schema({"type": "string", "pattern": pattern})


def test_schemas_inside_a_structural_tag_are_checked_where_they_stand() -> None:
    tag = {"type": "structural_tag", "format": {"type": "tag", "begin": "<", "content": {"type": "json_schema", "json_schema": {"not": {}}}, "end": ">"}}
    with pytest.raises(SchemaError, match=r"^#/format/content/json_schema: not is not supported$"):
        check_tag_schemas(tag)
