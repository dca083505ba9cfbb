import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from stoker_engine.config import EngineSettings, LifecycleConfig, ModelConfig
from stoker_gateway.api.config import ApiSettings
from stoker_operator.crd import LIST_TYPES, crd_yaml, custom_resource_definition
from stoker_operator.rules import RULES
from stoker_operator.v1alpha1 import ApiSpec, EngineSpec, InferenceDeployment, ModelSpec

Schema = dict[str, Any]

ALLOWED_KEYS = {
    *("type", "format", "description", "nullable", "default", "enum", "pattern", "properties", "additionalProperties", "items", "required"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties"),
    *("x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
    "x-kubernetes-preserve-unknown-fields",
}
INT_OR_STRING = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
BOUNDS = {"string": {"maxLength", "enum"}, "array": {"maxItems"}, "integer": {"minimum", "enum"}, "number": {"minimum"}, "boolean": {"type"}}
MAX_FILE_BYTES = 200_000
"""`kubectl apply` writes the file into an annotation, and all annotations together may have 262,144 bytes."""


@pytest.fixture(scope="module")
def version() -> Schema:
    found: Schema = custom_resource_definition()["spec"]["versions"][0]
    return found


@pytest.fixture(scope="module")
def schema(version: Schema) -> Schema:
    found: Schema = version["schema"]["openAPIV3Schema"]
    return found


def walk(node: Schema, path: str = "$") -> Iterator[tuple[str, Schema]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if key in node:
            yield from walk(node[key], path + suffix)


def declared(schema: Schema) -> list[tuple[str, Schema]]:
    """All nodes but those that Kubernetes itself defines."""
    return [(path, node) for path, node in walk(schema) if path not in ("$.apiVersion", "$.kind", "$.metadata")]


def test_the_schema_is_structural(schema: Schema) -> None:
    for path, node in walk(schema):
        if "anyOf" in node:
            node = {"type": "string"} | {key: value for key, value in node.items() if INT_OR_STRING.get(key) != value}
        assert set(node) <= ALLOWED_KEYS, path
        assert node["type"] in {"object", "array", "string", "integer", "number", "boolean"}, path
        kinds = {"properties", "additionalProperties", "x-kubernetes-preserve-unknown-fields"} & set(node)
        assert bool(kinds) == (node["type"] == "object") or path == "$.metadata", path
        assert not {"properties", "additionalProperties"} <= set(node), path
        assert ("items" in node) == (node["type"] == "array"), path
        assert set(node.get("required", [])) <= set(node.get("properties", {})), path
        assert node.get("required") != [], path


def test_every_field_has_a_description(schema: Schema) -> None:
    assert [path for path, node in declared(schema) if "description" not in node and path[-1] not in "]}"] == []


def is_bounded(node: Schema) -> bool:
    if "anyOf" in node:
        return {"minimum", "maxLength", "pattern"} <= set(node)
    if node["type"] == "object":
        return "properties" in node or "maxProperties" in node
    return bool(BOUNDS[node["type"]] & set(node))


def test_every_string_list_map_and_number_is_bounded(schema: Schema) -> None:
    assert [path for path, node in declared(schema) if not is_bounded(node)] == []


def test_only_what_kubernetes_defines_is_open(schema: Schema) -> None:
    open_paths = {path for path, node in walk(schema) if "x-kubernetes-preserve-unknown-fields" in node}
    assert open_paths == {"$.spec.engine.env[].valueFrom", "$.spec.api.env[].valueFrom", "$.spec.podTemplate.spec"}


def test_null_means_something_only_to_the_disruption_budget(schema: Schema) -> None:
    assert [path for path, node in walk(schema) if "nullable" in node] == ["$.spec.availability.maxUnavailable"]


def test_only_lists_without_repetition_are_shared_by_writers(schema: Schema) -> None:
    assert [path for path, node in walk(schema) if "x-kubernetes-list-type" in node and node["type"] != "array"] == []
    assert len([path for path, node in walk(schema) if "x-kubernetes-list-type" in node]) == len(LIST_TYPES)


def test_exclusive_bounds_are_flags_beside_the_bound(schema: Schema) -> None:
    share = schema["properties"]["spec"]["properties"]["engine"]["properties"]["gpuMemoryUtilization"]
    assert (share["minimum"], share["exclusiveMinimum"], share["maximum"]) == (0, True, 1)


def test_integer_bounds_are_exact_as_floats(schema: Schema) -> None:
    assert all(float(node[key]) == node[key] and abs(node[key]) <= 2**53 for _, node in walk(schema) for key in ("minimum", "maximum") if key in node)


def test_defaults_are_of_their_own_type_and_objects_default_to_empty(schema: Schema) -> None:
    types = {"object": dict, "array": list, "string": str, "integer": int, "number": float, "boolean": bool}
    for path, node in walk(schema):
        if "default" in node:
            assert type(node["default"]) in ({int, str} if "anyOf" in node else {types[node["type"]]}), path
            assert node["default"] in node.get("enum", [node["default"]]), path
    sections = {name: node for name, node in schema["properties"]["spec"]["properties"].items() if node["type"] == "object" and name != "model"}
    assert len(sections) == 13
    assert all(node["default"] == {} for node in sections.values())


def test_the_status_has_no_defaults(schema: Schema) -> None:
    assert [path for path, node in walk(schema["properties"]["status"]) if "default" in node] == []


def fields_of(*structs: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for struct in structs for field in msgspec.structs.fields(struct)}


@pytest.mark.parametrize(
    ("section", "settings", "spec"),
    [
        ("engine", EngineSettings, EngineSpec),
        ("api", ApiSettings, ApiSpec),
        ("model", ModelConfig, ModelSpec),
        ("lifecycle", LifecycleConfig, LifecycleConfig),
    ],
)
def test_every_setting_is_in_the_schema(schema: Schema, section: str, settings: type[msgspec.Struct], spec: type[msgspec.Struct]) -> None:
    found = set(schema["properties"]["spec"]["properties"][section]["properties"])
    assert found == fields_of(spec)
    assert found >= fields_of(settings)


def test_an_object_filled_by_the_schemas_defaults_is_what_the_structs_default_to(schema: Schema) -> None:
    def fill(node: Schema, value: Any) -> Any:
        for name, child in node.get("properties", {}).items():
            if name not in value and "default" in child:
                value[name] = child["default"].copy() if isinstance(child["default"], dict | list) else child["default"]
            if isinstance(value.get(name), dict):
                fill(child, value[name])
        return value

    written = {"apiVersion": "stoker.dev/v1alpha1", "kind": "InferenceDeployment", "metadata": {"name": "a"}, "spec": {"model": {"uri": "file:///a"}}}
    plain = msgspec.convert(written, InferenceDeployment)
    assert msgspec.convert(fill(schema, written), InferenceDeployment) == plain


def test_every_rule_stands_in_the_schema_with_a_message(schema: Schema) -> None:
    validations = [validation for _, node in walk(schema) for validation in node.get("x-kubernetes-validations", [])]
    assert sorted(validation["rule"] for validation in validations) == sorted(rule.cel for rule in RULES)
    assert all(len(validation["message"]) <= 2048 and "\n" not in validation["message"] for validation in validations)


def test_rules_hold_for_the_empty_object_that_is_the_default(schema: Schema) -> None:
    rules = [validation["rule"] for _, node in walk(schema) if node.get("default") == {} for validation in node.get("x-kubernetes-validations", [])]
    assert rules
    assert all(rule.startswith("!has(self.") for rule in rules)


def test_a_rules_field_path_names_a_declared_field(schema: Schema) -> None:
    for path, node in walk(schema):
        for validation in node.get("x-kubernetes-validations", []):
            target = node
            for name in validation.get("fieldPath", "").split(".")[1:]:
                assert name in target["properties"], (path, validation)
                target = target["properties"][name]


def test_patterns_mean_the_same_to_go(schema: Schema) -> None:
    patterns = [node["pattern"] for _, node in walk(schema) if "pattern" in node]
    assert patterns
    assert all(re.compile(pattern) and not re.search(r"\(\?[=!<]|\\[1-9]", pattern) for pattern in patterns)


def test_subresources_and_columns_name_fields_that_exist(schema: Schema, version: Schema) -> None:
    scale = version["subresources"]["scale"]
    columns = [column["jsonPath"] for column in version["additionalPrinterColumns"]]
    for path in [*scale.values(), *(column for column in columns if not column.startswith(".metadata"))]:
        node = schema
        for name in re.sub(r"\[\?.*\]", "[]", path).split(".")[1:]:
            node = node["properties"][name.removesuffix("[]")]
            node = node["items"] if name.endswith("[]") else node


def test_the_columns_are_a_deployments_and_why_it_is_not_ready(version: Schema) -> None:
    columns = version["additionalPrinterColumns"]
    assert [column["name"] for column in columns if "priority" not in column] == ["Ready", "Desired", "Up-To-Date", "Available", "Status", "Model", "Age"]
    assert [column["name"] for column in columns if column.get("priority") == 1] == ["URL", "Revision", "GPU"]


def test_the_yaml_is_the_definition_and_always_the_same() -> None:
    assert yaml.safe_load(crd_yaml()) == custom_resource_definition()
    assert crd_yaml() == crd_yaml()
    assert "&id" not in crd_yaml()
    assert len(crd_yaml().encode()) < MAX_FILE_BYTES


def test_the_committed_manifest_is_the_generated_one() -> None:
    assert (Path(__file__).parents[2] / "manifests" / "crd.yaml").read_text() == crd_yaml()
