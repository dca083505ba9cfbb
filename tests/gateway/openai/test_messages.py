from typing import Any

import msgspec
import pytest

from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.messages import template_messages
from stoker_gateway.openai.request import ChatMessage

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"n": 4}'}, "index": 0}


def convert(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return template_messages(msgspec.convert(list(messages), list[ChatMessage]))


def test_text_parts_are_joined_by_newlines() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]
    assert convert({"role": "user", "content": parts}) == [{"role": "user", "content": "a\nb"}]


def test_names_and_reasoning_are_kept() -> None:
    message = {"role": "assistant", "content": "a", "name": "n", "reasoning_content": "r", "refusal": None, "annotations": []}
    assert convert(message) == [{"role": "assistant", "content": "a", "name": "n", "reasoning_content": "r", "thinking": "r"}]


def test_reasoning_is_taken_under_both_names() -> None:
    assert convert({"role": "assistant", "content": "a", "reasoning": "r"}) == convert({"role": "assistant", "content": "a", "reasoning_content": "r"})


@pytest.mark.case("C007")
@pytest.mark.parametrize(
    ("arguments", "converted"), [('{"n": 4}', {"n": 4}), ("", {}), (" ", {}), ("{}", {}), ({"n": 4}, {"n": 4}), ('{"n', '{"n'), ("[1]", "[1]")]
)
def test_a_calls_arguments_are_an_object_and_its_answer_names_it(arguments: str | dict[str, int], converted: object) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    history = convert({"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "17"}]})
    assert history[0] == {"role": "assistant", "content": "", "tool_calls": [{**call, "function": {"name": "f", "arguments": converted}}]}
    assert history[1] == {"role": "tool", "content": "17", "tool_call_id": "c1"}


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "narrator", "content": "x"}, "messages[0].role"),
        ({"role": "function", "content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "system", "content": None}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": "x", "tool_calls": [CALL]}, "messages[0].tool_calls"),
        ({"role": "user", "content": "x", "tool_call_id": "c1"}, "messages[0].tool_call_id"),
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id"),
        ({"role": "tool", "content": "x", "tool_call_id": "c1"}, "messages[0].tool_call_id"),
        ({"role": "assistant", "content": "x", "function_call": {"name": "f"}}, "messages[0].function_call"),
    ],
)
def test_what_a_template_could_not_show_is_refused_by_name(message: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        convert(message)
    assert (caught.value.status, caught.value.param) == (400, param)
