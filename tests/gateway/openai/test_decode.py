import json
from typing import Any

import pytest

from stoker_gateway.openai.decode import decode_chat_completion_request, decode_completion_request
from stoker_gateway.openai.errors import ApiError

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f"}}


def chat_error(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        decode_chat_completion_request(json.dumps({**CHAT, **fields}).encode())
    return caught.value


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"n": 0.5}, "n", "Invalid value for 'n': expected int | null, got float."),
        ({"n": True}, "n", "Invalid value for 'n': expected int | null, got bool."),
        ({"messages": []}, "messages", "Invalid value for 'messages': expected array of length >= 1."),
        ({"messages": None}, "messages", "Missing required parameter: 'messages'."),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "Missing required parameter: 'messages[0].role'."),
        ({"messages": [{"role": "user", "x": 1}]}, "messages[0].x", "Unknown parameter: 'messages[0].x'."),
        ({"logit_bias": {"abc": 1}}, "logit_bias", "Invalid value for 'logit_bias': expected int, got str."),
        ({"logit_bias": {"1": "a"}}, "logit_bias", "Invalid value for 'logit_bias': expected float, got str."),
        ({"max_tokens": 10**40}, "max_tokens", "Invalid value for 'max_tokens': expected int <= 2147483647."),
        ({"tools": []}, "tools", None),
        ({"tools": [TOOL, TOOL]}, "tools[1].function.name", None),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type", None),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", None),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object", "properties": {}}}}]},
            "tools[0].function.parameters",
            None,
        ),
        ({"tool_choice": "required"}, "tool_choice", "tool_choice is only allowed when tools are given."),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice", None),
        ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice", None),
        ({"functions": [{"name": "f"}]}, "functions", "functions is not supported by this server; use tools."),
        ({"response_format": {"type": "yaml"}}, "response_format.type", "Invalid value for 'response_format.type': invalid enum value 'yaml'."),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, "response_format.json_schema.name", None),
        ({"structured_outputs": {"yaml": "x"}}, "structured_outputs.yaml", "Unknown parameter: 'structured_outputs.yaml'."),
        ({"store": 0}, "store", "store is not supported by this server beyond false."),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message", None),
    ],
)
def test_an_error_names_the_field_and_what_it_takes(fields: dict[str, Any], param: str, message: str | None) -> None:
    error = chat_error(**fields)
    assert error.status == 400 and error.param == param
    assert message is None or error.message == message


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "text"}},
        {"modalities": ["text"]},
        {"store": False, "service_tier": "auto", "tool_choice": "none"},
        {"user": {"any": "thing"}, "metadata": {"a": 1}, "parallel_tool_calls": True, "prediction": {"type": "content", "content": "x"}},
        {"tools": None, "not_a_field": None},
    ],
)
def test_a_field_that_asks_for_what_happens_anyway_is_taken(fields: dict[str, Any]) -> None:
    assert decode_chat_completion_request(json.dumps({**CHAT, **fields}).encode()).model == "m"


@pytest.mark.parametrize("value", ["z" * 100_000, "`'" * 50_000])
def test_an_error_repeats_little_of_what_it_refuses(value: str) -> None:
    error = chat_error(response_format={"type": value})
    assert error.param == "response_format.type" and len(error.message) < 200


def test_a_float_without_a_fraction_is_still_no_count() -> None:
    assert chat_error(max_tokens=5.0).param == "max_tokens"


def test_an_integer_is_taken_for_a_number() -> None:
    assert decode_chat_completion_request(json.dumps({**CHAT, "temperature": 1}).encode()).temperature == 1.0


@pytest.mark.parametrize("prompt", ["a", ["a", "b"], [1, 2], [[1], [2, 3]]])
def test_all_four_forms_of_a_prompt_are_taken(prompt: object) -> None:
    assert decode_completion_request(json.dumps({"model": "m", "prompt": prompt}).encode()).prompt == prompt
