import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from stoker_engine.config import EngineSettings, LifecycleConfig, ModelConfig
from stoker_gateway.api.config import ApiSettings
from stoker_operator.crd import crd_yaml, custom_resource_definition
from stoker_operator.rules import RULES
from stoker_operator.v1alpha1 import InferenceDeployment

Schema = dict[str, Any]

ALLOWED_KEYS = {
    *("type", "format", "description", "default", "enum", "pattern", "properties", "items", "required"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems"),
    *("x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
}


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
    if "items" in node:
        yield from walk(node["items"], f"{path}[]")


def declared(schema: Schema) -> list[tuple[str, Schema]]:
    """All nodes but those that Kubernetes itself defines."""
    return [(path, node) for path, node in walk(schema) if path not in ("$.apiVersion", "$.kind", "$.metadata")]


def test_the_schema_is_structural(schema: Schema) -> None:
    for path, node in walk(schema):
        assert set(node) <= ALLOWED_KEYS, path
        assert node["type"] in {"object", "array", "string", "integer", "number", "boolean"}, path
        assert ("properties" in node) == (node["type"] == "object") or path == "$.metadata", path
        assert ("items" in node) == (node["type"] == "array"), path
        assert set(node.get("required", [])) <= set(node.get("properties", {})), path
        assert node.get("required") != [], path


def test_every_field_has_a_description(schema: Schema) -> None:
    assert [path for path, node in declared(schema) if "description" not in node and not path.endswith("[]")] == []


def test_every_string_list_and_number_is_bounded(schema: Schema) -> None:
    bounds = {"string": {"maxLength", "enum"}, "array": {"maxItems"}, "integer": {"minimum", "enum"}, "number": {"minimum"}}
    assert [path for path, node in declared(schema) if not bounds.get(node["type"], set(node)) & set(node)] == []


def test_exclusive_bounds_are_flags_beside_the_bound(schema: Schema) -> None:
    share = schema["properties"]["spec"]["properties"]["engine"]["properties"]["gpuMemoryUtilization"]
    assert (share["minimum"], share["exclusiveMinimum"], share["maximum"]) == (0, True, 1)


def test_integer_bounds_are_exact_as_floats(schema: Schema) -> None:
    assert all(float(node[key]) == node[key] and abs(node[key]) <= 2**53 for _, node in walk(schema) for key in ("minimum", "maximum") if key in node)


def test_defaults_are_of_their_own_type_and_objects_default_to_empty(schema: Schema) -> None:
    types = {"object": dict, "array": list, "string": str, "integer": int, "number": float, "boolean": bool}
    for path, node in walk(schema):
        if "default" in node:
            assert type(node["default"]) is types[node["type"]], path
            assert node["default"] in node.get("enum", [node["default"]]), path
    spec = schema["properties"]["spec"]["properties"]
    assert [spec[name]["default"] for name in ("engine", "api", "lifecycle")] == [{}, {}, {}]


def test_the_status_has_no_defaults(schema: Schema) -> None:
    assert [path for path, node in walk(schema["properties"]["status"]) if "default" in node] == []


@pytest.mark.parametrize(("section", "settings"), [("engine", EngineSettings), ("api", ApiSettings), ("model", ModelConfig), ("lifecycle", LifecycleConfig)])
def test_every_setting_is_in_the_schema(schema: Schema, section: str, settings: type[msgspec.Struct]) -> None:
    assert set(schema["properties"]["spec"]["properties"][section]["properties"]) == {field.encode_name for field in msgspec.structs.fields(settings)}


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
        for name in path.split(".")[1:]:
            node = node["properties"][name]
    assert [column["name"] for column in version["additionalPrinterColumns"]] == ["Model", "Replicas", "Age"]


def test_the_yaml_is_the_definition_and_always_the_same() -> None:
    assert yaml.safe_load(crd_yaml()) == custom_resource_definition()
    assert crd_yaml() == crd_yaml()
    assert "&id" not in crd_yaml()


def test_the_committed_manifest_is_the_generated_one() -> None:
    assert (Path(__file__).parents[2] / "manifests" / "crd.yaml").read_text() == crd_yaml()
