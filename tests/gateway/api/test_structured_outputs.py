from typing import Any

import msgspec
import pytest

from stoker_engine.sampling_params import StructuredOutputs
from stoker_gateway.api.sampling import chat_sampling_params, completion_sampling_params
from stoker_gateway.openai.decode import decode_chat_completion_request, decode_completion_request
from stoker_gateway.openai.errors import ApiError

INTEGER = {"type": "integer"}
CLOSED = {"type": "object", "properties": {"b": INTEGER, "a": INTEGER}, "required": ["a", "b"], "additionalProperties": False}


def chat(**fields: Any) -> StructuredOutputs | None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}
    return chat_sampling_params(decode_chat_completion_request(msgspec.json.encode(body)), {}).structured_outputs


def schema_format(schema: object, **fields: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "point", "schema": schema, **fields}}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"response_format": None, "structured_outputs": None}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, StructuredOutputs("json_object", parameter="response_format")),
        (
            schema_format(CLOSED, strict=True),
            StructuredOutputs("json", msgspec.json.encode(CLOSED).decode(), parameter="response_format.json_schema"),
        ),
        (schema_format(INTEGER, strict=False), StructuredOutputs("json", '{"type":"integer"}', parameter="response_format.json_schema")),
        ({"structured_outputs": {"json": INTEGER}}, StructuredOutputs("json", '{"type":"integer"}', parameter="structured_outputs.json")),
        ({"structured_outputs": {"json": "{}"}}, StructuredOutputs("json", "{}", parameter="structured_outputs.json")),
        ({"structured_outputs": {"json_object": True}}, StructuredOutputs("json_object", parameter="structured_outputs.json_object")),
        ({"structured_outputs": {"regex": "a+"}}, StructuredOutputs("regex", "a+", parameter="structured_outputs.regex")),
        ({"structured_outputs": {"choice": ["a", "b"]}}, StructuredOutputs("choice", '["a","b"]', parameter="structured_outputs.choice")),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, StructuredOutputs("grammar", 'root ::= "a"', parameter="structured_outputs.grammar")),
        ({"response_format": {"type": "text"}, "structured_outputs": {"regex": "a"}}, StructuredOutputs("regex", "a", parameter="structured_outputs.regex")),
    ],
)
@pytest.mark.case("C038")
def test_the_form_that_a_request_asks_for_reaches_the_engine(fields: dict[str, Any], expected: StructuredOutputs | None) -> None:
    assert chat(**fields) == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_object", "json_schema": {"name": "a", "schema": {}}}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}}, "response_format.json_schema.name"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}, "response_format.json_schema.schema"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object"),
        ({"structured_outputs": {"disable_any_whitespace": True}}, "structured_outputs.disable_any_whitespace"),
        ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}, "structured_outputs"),
    ],
)
@pytest.mark.case("C038")
def test_two_forms_or_half_a_form_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as error:
        chat(**fields)
    assert (error.value.status, error.value.param) == (400, param)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (INTEGER, "its root must have type 'object'"),
        ({"type": "object", "properties": {}}, "at the root, additionalProperties must be false"),
        ({**CLOSED, "required": ["a"]}, "at the root, required must name every property: 'b' is missing"),
        (
            {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}, "required": ["a"], "additionalProperties": False},
            "at properties.a.items, additionalProperties must be false",
        ),
        ({**CLOSED, "$defs": {"c": {"properties": {}}}}, "at $defs.c, additionalProperties must be false"),
    ],
)
def test_a_strict_schema_leaves_nothing_open(schema: dict[str, Any], problem: str) -> None:
    with pytest.raises(ApiError) as error:
        chat(**schema_format(schema, strict=True))
    assert error.value.message == f"Invalid schema for 'point' with strict: {problem}."
    assert (error.value.param, error.value.code) == ("response_format.json_schema.schema", "invalid_json_schema")
    assert chat(**schema_format(schema)) is not None


def test_completions_take_the_same_fields() -> None:
    body = msgspec.json.encode({"model": "m", "prompt": "x", "structured_outputs": {"choice": ["a"]}})
    params = completion_sampling_params(decode_completion_request(body), {})
    assert params.structured_outputs == StructuredOutputs("choice", '["a"]', parameter="structured_outputs.choice")
