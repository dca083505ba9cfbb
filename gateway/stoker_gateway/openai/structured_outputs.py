"""The fields that give an answer its form: OpenAI's `response_format` and vLLM's `structured_outputs`, and OpenAI's rules for strict schemas."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from stoker_engine.structured_output_checks import MAX_CHARACTERS
from stoker_gateway.openai.errors import ApiError

SchemaName = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]+\Z", min_length=1, max_length=64)]
JsonSchema = dict[str, Any]


class JsonSchemaFormat(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A named schema. `strict` asks that the schema leaves nothing open; the answer follows it in any case."""

    name: SchemaName
    schema: JsonSchema
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class StructuredOutputsRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Exactly one of them. `json` and `structural_tag` may be JSON text, too."""

    json: str | JsonSchema | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    structural_tag: str | dict[str, Any] | None = None


def schema_text(schema: JsonSchema, param: str) -> str:
    """The schema as JSON. Raises ApiError (400) for one that is too large for the engine; how deep it is was checked with the whole body."""
    text = msgspec.json.encode(schema).decode()
    if len(text) > MAX_CHARACTERS:
        raise ApiError(f"{param} must have at most {MAX_CHARACTERS} characters as JSON, got {len(text)}.", param=param, code="invalid_json_schema")
    return text


def check_strict(name: str, schema: JsonSchema, param: str) -> None:
    """OpenAI's rules for `strict`: objects with all their properties required and no others. Raises ApiError (400) with the first place that breaks one."""
    if schema.get("type") != "object":
        raise ApiError(f"Invalid schema for '{name}' with strict: its root must have type 'object'.", param=param, code="invalid_json_schema")
    for path, subschema in _schemas(schema, ()):
        problem = _strict_problem(subschema)
        if problem is not None:
            place = ".".join(path)[:200] or "the root"
            raise ApiError(f"Invalid schema for '{name}' with strict: at {place}, {problem}.", param=param, code="invalid_json_schema")


def _strict_problem(schema: JsonSchema) -> str | None:
    kind = schema.get("type")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind) and "properties" not in schema:
        return None
    if schema.get("additionalProperties") is not False:
        return "additionalProperties must be false"
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return "properties must be an object and required an array"
    named = {key for key in required if isinstance(key, str)}
    missing = next((key for key in properties if key not in named), None)
    return None if missing is None else f"required must name every property: {missing[:100]!r} is missing"


def _schemas(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], JsonSchema]]:
    """The schema and all in it, each with its place."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for name in ("properties", "patternProperties", "$defs", "definitions"):
        inner = schema.get(name)
        for key, value in inner.items() if isinstance(inner, dict) else ():
            yield from _schemas(value, (*path, name, key))
    for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
        inner = schema.get(name)
        for index, value in enumerate(inner if isinstance(inner, list) else ()):
            yield from _schemas(value, (*path, name, str(index)))
    for name in ("items", "additionalProperties"):
        yield from _schemas(schema.get(name), (*path, name))
