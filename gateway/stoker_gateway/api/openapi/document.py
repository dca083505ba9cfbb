"""Operations → an OpenAPI 3.1 document."""

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from stoker_engine.version import __version__
from stoker_gateway.api.openapi.operations import OPERATIONS, Operation
from stoker_gateway.openai.fields import FieldRules

_REF_TEMPLATE = "#/components/schemas/{name}"
_TEXT = {"schema": {"type": "string"}}
_NULL = {"type": "null"}

Json = dict[str, Any]


def openapi_document(routes: Iterable[tuple[str, str]], model_names: Sequence[str]) -> Json:
    """Of the (method, path) pairs that are served. A path's parameter may say how it matches: `{model:path}`."""
    operations = {(method, re.sub(r":\w+}", "}", path)): OPERATIONS[method, re.sub(r":\w+}", "}", path)] for method, path in routes}
    refs, schemas = _schemas(operations.values(), model_names)
    paths: dict[str, Json] = {}
    for (method, path), operation in operations.items():
        paths.setdefault(path, {})[method.lower()] = {"operationId": _operation_id(method, path), **_operation(path, operation, refs)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Stoker", "version": __version__, "description": "One model, by the APIs that clients speak. A null is as good as an absent field."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }


def _schemas(operations: Iterable[Operation], model_names: Sequence[str]) -> tuple[dict[Any, Json], Json]:
    """What to write in the place of each type, and the components that this refers to."""
    types: dict[Any, None] = {}
    rules: dict[Any, FieldRules] = {}
    for operation in operations:
        types |= dict.fromkeys(kind for kind in (operation.body, operation.answer, operation.error, *operation.events) if kind is not None)
        if operation.body is not None:
            rules[operation.body] = operation.rules
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF_TEMPLATE)
    refs = dict(zip(types, schemas, strict=True))
    for body, body_rules in rules.items():
        name = refs[body]["$ref"].rpartition("/")[2]
        components[name] = _request_schema(components[name], body_rules)
        components[name]["properties"]["model"] = {"enum": [*model_names] if "model" in components[name].get("required", ()) else [*model_names, None]}
    return refs, _portable(components)


def _request_schema(schema: Json, rules: FieldRules) -> Json:
    """With the fields that are not honored, and null in the place of any that may be absent. Nothing else is taken."""
    required = schema.get("required", [])
    properties = {name: field if name in required else _nullable(field) for name, field in schema["properties"].items()}
    for name in sorted(rules.ignored):
        properties[name] = {"description": "Ignored."}
    for name, harmless in sorted(rules.refused.items()):
        properties[name] = {"description": "Not supported by this server.", "enum": [*harmless, None]}
    return {**schema, "properties": properties, "additionalProperties": False}


def _nullable(schema: Json) -> Json:
    return schema if _NULL in schema.get("anyOf", ()) else {"anyOf": [schema, _NULL]}


def _portable(value: Any) -> Any:
    """Patterns in the dialect of JSON schema, which has no other anchors than ^ and $."""
    if isinstance(value, dict):
        return {name: _pattern(item) if name == "pattern" and isinstance(item, str) else _portable(item) for name, item in value.items()}
    return [_portable(item) for item in value] if isinstance(value, list) else value


def _pattern(pattern: str) -> str:
    return pattern.replace(r"\A", "^").replace(r"\Z", "$")


def _operation_id(method: str, path: str) -> str:
    return "_".join([method.lower(), *re.findall(r"\w+", path)])


def _operation(path: str, operation: Operation, refs: dict[Any, Json]) -> Json:
    described: Json = {"summary": operation.summary, "responses": _responses(operation, refs)}
    parameters = [_path_parameter(name) for name in re.findall(r"{(\w+)}", path)] + _query_parameters(operation.query)
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": refs[operation.body]}}}
    return described


def _responses(operation: Operation, refs: dict[Any, Json]) -> Json:
    content: Json = {operation.page_type: _TEXT} if operation.answer is None else {"application/json": {"schema": refs[operation.answer]}}
    if operation.events:
        content = {**content, "text/event-stream": {"schema": _event_schema([refs[event] for event in operation.events], operation.end)}}
    responses: dict[str, Json] = {"200": {"description": "OK", "content": content}}
    if operation.links:
        links = {_operation_id(*link): {"operationId": _operation_id(*link), "parameters": {"response_id": "$response.body#/id"}} for link in operation.links}
        responses["200"]["links"] = links
    if operation.is_probe:
        responses["503"] = {"description": "Not now", "content": content}
    error = {"application/json": {"schema": refs[operation.error]}}
    return responses | {str(status): {"description": HTTPStatus(status).phrase, "content": error} for status in operation.errors}


def _event_schema(types: list[Json], end: str | None) -> Json:
    """Of each event of a stream. Its data is one of `types` in JSON, or `end`."""
    data: Json = {"type": "string", "contentMediaType": "application/json", "contentSchema": {"anyOf": types}}
    if end is not None:
        data = {"anyOf": [data, {"const": end}]}
    return {"type": "object", "properties": {"event": {"type": "string"}, "data": data}, "required": ["data"]}


def _path_parameter(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameters(query: Any) -> list[Json]:
    if query is None:
        return []
    (schema,), components = msgspec.json.schema_components([query], ref_template=_REF_TEMPLATE)
    fields = components[schema["$ref"].rpartition("/")[2]]["properties"]
    return [{"name": name, "in": "query", "required": False, "schema": _inlined(field, components)} for name, field in fields.items()]


def _inlined(field: Json, components: Json) -> Json:
    """A query has no nulls, and enums that are components of their own stand where they are used."""
    choices: list[Json] = [choice for choice in field.get("anyOf", [field]) if choice != _NULL]
    chosen: Json = choices[0] if len(choices) == 1 else {"anyOf": choices}
    if "$ref" in chosen:
        chosen = components[chosen["$ref"].rpartition("/")[2]]
    if "items" in chosen:
        chosen = {**chosen, "items": _inlined(chosen["items"], components)}
    return chosen
