"""msgspec structs → a structural OpenAPI v3 schema, as a CustomResourceDefinition takes it."""

from typing import Any

import msgspec

from stoker_engine.settings import in_schema

Schema = dict[str, Any]

INT_OR_STRING = "x-kubernetes-int-or-string"
_DROPPED = frozenset({"title", "examples", "propertyNames"})
_ORDER = (
    *("description", "type", "format", "nullable", "enum", "pattern", "default"),
    *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties"),
    *("required", "properties", "additionalProperties", "items", "anyOf", INT_OR_STRING, "x-kubernetes-preserve-unknown-fields"),
)
_MAX_EXACT_INTEGER = 2**53
"""The API server keeps `maximum` as a float, where a larger bound would be another number; `format: int64` says as much."""


def structural_schema(struct: type[msgspec.Struct]) -> Schema:
    """The schema of `struct` with every reference inlined and every default filled in."""
    (root,), components = msgspec.json.schema_components([struct], ref_template="{name}")
    return _structural(root, components)


def _structural(node: Schema, components: dict[str, Schema]) -> Schema:
    node = _resolve(node, components)
    result = {key: value for key, value in node.items() if key not in _DROPPED}
    result |= _bounds(node)
    if "pattern" in node:
        result["pattern"] = in_schema(node["pattern"])
    if "enum" in node:
        result["type"] = "string" if isinstance(node["enum"][0], str) else "integer"
    if result.get("type") == "integer":
        result["format"] = "int64"
        if result.get("maximum", 0) > _MAX_EXACT_INTEGER:
            del result["maximum"]
    result |= _children(node, components)
    if "default" in node:
        # An object defaults to `{}`: the API server then fills its fields, each from its own default.
        default = list(node["default"]) if isinstance(node["default"], tuple) else node["default"]
        result["default"] = {} if result.get("type") == "object" and default is not None else default
    return {key: result[key] for key in sorted(result, key=_ORDER.index) if result[key] is not None and (key, result[key]) != ("required", [])}


def _children(node: Schema, components: dict[str, Schema]) -> Schema:
    """The schemas below `node`. A struct's `additionalProperties: false` goes: the API server prunes unknown fields, or refuses them if told to."""
    children: Schema = {"additionalProperties": None}
    if "items" in node:
        children["items"] = _structural(node["items"], components)
    if "properties" in node:
        children["properties"] = {name: _structural(child, components) for name, child in node["properties"].items()}
    elif isinstance(node.get("additionalProperties"), dict):
        children["additionalProperties"] = _structural(node["additionalProperties"], components)
    return children


def without_defaults(node: Schema) -> Schema:
    """The same schema for what a controller writes: an absent field is one that it has not reported."""
    result = {key: value for key, value in node.items() if key != "default"}
    if "items" in node:
        result["items"] = without_defaults(node["items"])
    if "properties" in node:
        result["properties"] = {name: without_defaults(child) for name, child in node["properties"].items()}
    return result


def _resolve(node: Schema, components: dict[str, Schema]) -> Schema:
    """`node` without `$ref` and without the null alternative; its own description wins."""
    node = dict(node)
    if "$ref" in node:
        return _resolve(components[node.pop("$ref")] | node, components)
    alternatives = [choice for choice in node.pop("anyOf", []) if choice != {"type": "null"}] + node.pop("allOf", [])
    for alternative in alternatives:
        node = alternative | node
    if node.get(INT_OR_STRING) and "anyOf" not in node:
        # The one form that a structural schema may have: no type, these two alternatives, and the bounds of both beside them.
        del node["type"]
        return node | {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    return _resolve(node, components) if alternatives else node


def _bounds(node: Schema) -> Schema:
    """OpenAPI v3.0 writes an exclusive bound as a flag beside the bound."""
    bounds: Schema = {}
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in node:
            bounds |= {bound: node[exclusive], exclusive: True}
    return bounds
