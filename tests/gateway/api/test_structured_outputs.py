from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stoker_engine.sampling_params import StructuredOutputs
from stoker_gateway.anthropic.request import MessagesRequest
from stoker_gateway.api.messages.chat import chat_request as message_chat
from stoker_gateway.api.responses.conversation import chat_request as response_chat
from stoker_gateway.api.sampling import chat_sampling_params, completion_sampling_params
from stoker_gateway.openai.decode import decode_chat_completion_request, decode_completion_request
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.responses.request import ResponsesRequest
from stoker_gateway.openai.structured_outputs import check_strict

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


class Counted(str):
    """A name that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


def test_each_property_of_a_strict_schema_is_looked_up_once() -> None:
    names = [Counted(f"p{index}") for index in range(1000)]
    properties = {name: INTEGER for name in names}
    Counted.compared = 0
    check_strict("point", {"type": "object", "properties": properties, "required": [str(name) for name in names], "additionalProperties": False}, "x")
    assert Counted.compared <= 2 * len(names)


@pytest.mark.parametrize("fields", [{"strict": True}, {}])
def test_a_schema_that_no_engine_takes_is_refused_before_it_is_walked(fields: dict[str, Any]) -> None:
    names = [f"property_{index}" for index in range(10_000)]
    large = {**CLOSED, "properties": dict.fromkeys(names, True), "required": names}
    with pytest.raises(ApiError, match="at most 131072 characters as JSON") as error:
        chat(**schema_format(large, **fields))
    assert (error.value.param, error.value.code) == ("response_format.json_schema.schema", "invalid_json_schema")
    with pytest.raises(ApiError) as error:
        chat(structured_outputs={"json": large})
    assert error.value.param == "structured_outputs.json"


def test_a_strict_tool_that_no_engine_takes_is_refused_in_all_three_apis() -> None:
    names = [f"property_{index}" for index in range(10_000)]
    large = {**CLOSED, "properties": dict.fromkeys(names, True), "required": names}
    message = {"role": "user", "content": "x"}
    responses = msgspec.convert(
        {"model": "m", "input": "x", "tools": [{"type": "function", "name": "f", "parameters": large, "strict": True}]}, ResponsesRequest
    )
    tools = [{"name": "f", "input_schema": large, "strict": True}]
    messages = msgspec.convert({"model": "m", "max_tokens": 1, "messages": [message], "tools": tools}, MessagesRequest)
    calls: list[Callable[[], object]] = [
        lambda: chat(tools=[{"type": "function", "function": {"name": "f", "parameters": large, "strict": True}}]),
        lambda: response_chat(responses, []),
        lambda: message_chat(messages),
    ]
    for call in calls:
        with pytest.raises(ApiError, match=r"tools\[0\].function.parameters must have at most 131072 characters"):
            call()


def test_completions_take_the_same_fields() -> None:
    body = msgspec.json.encode({"model": "m", "prompt": "x", "structured_outputs": {"choice": ["a"]}})
    params = completion_sampling_params(decode_completion_request(body), {})
    assert params.structured_outputs == StructuredOutputs("choice", '["a"]', parameter="structured_outputs.choice")
