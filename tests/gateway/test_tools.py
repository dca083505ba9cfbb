"""Tools and reasoning through a real api: a scripted model that writes Hermes calls, its marks special tokens, and the official client."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import openai
import pydantic
import pytest

from stoker_gateway.openai.tools import Tool, template_tools

TEMPLATE = """{%- if tools -%}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>{%- endif -%}
{%- for m in messages -%}<|im_start|>{{ m.role }} {{ m.content }}
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif -%}
{%- for call in m.tool_calls or [] -%}<tool_call>{{ call.function | tojson }}</tool_call>{%- endfor -%}<|im_end|>
{%- endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant{%- endif -%}
{%- if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"""


class LogReading(pydantic.BaseModel):
    site: str
    celsius: float


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


TOOLS = [tool("log_reading"), tool("open_valve"), tool("get_time")]
SITE = {"site": 'Åse "B"', "celsius": -3.5}
LOG = '<tool_call>{"name":"log_reading","arguments":{"site":"Åse \\"B\\"","celsius":-3.5}}</tool_call>'
VALVE = '<tool_call>\n{"name": "open_valve", "arguments": {"pct": 40}}\n</tool_call>'
ANSWERS = {
    "log": LOG,
    "parse": LOG,
    "two": f"I will.\n{LOG}\n{VALVE}",
    "time": '<tool_call>{"name": "get_time"}</tool_call>',
    "broken": "Hm <tool_call>{oops}</tool_call> END",
    "think": f"<think>\nEND is near\n</think>\n\nWell END{LOG}",
    "thought": f"<think>I must.</think>{LOG}",
}
PARSED = [openai.pydantic_function_tool(LogReading, name="log_reading")]
REQUIRED: dict[str, Any] = {"tool_choice": "required"}
NAMED: dict[str, Any] = {"tool_choice": {"type": "function", "function": {"name": "log_reading"}}}


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def tool_api(make_tool_api: Callable[..., AbstractContextManager[Any]]) -> Iterator[Any]:
    offers = [template_tools(msgspec.convert(tools, list[Tool])) for tools in ([], TOOLS, PARSED)]
    with make_tool_api(TEMPLATE, [(user(text), tools, answer) for text, answer in ANSWERS.items() for tools in offers]) as api:
        yield api


def whole_and_streamed(client: openai.OpenAI, text: str, **fields: Any) -> tuple[Any, Any]:
    """The choice, by one answer and by the client's own accumulation of a stream."""
    request = {"model": "m", "messages": user(text), "tools": TOOLS, **fields}
    with client.chat.completions.stream(**request) as stream:
        streamed = stream.get_final_completion()
    return client.chat.completions.create(**request).choices[0], streamed.choices[0]


def calls_of(choice: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or []]


@pytest.mark.case("C004", "C005")
@pytest.mark.property("P65")
@pytest.mark.parametrize("choice", [{}, {"tool_choice": "auto"}, REQUIRED, NAMED], ids=["default", "auto", "required", "named"])
def test_the_client_reads_a_call_of_every_tool_choice(tool_client: openai.OpenAI, choice: dict[str, Any]) -> None:
    for answer in whole_and_streamed(tool_client, "log", **choice):
        assert calls_of(answer) == [("log_reading", SITE)]
        assert answer.finish_reason == "tool_calls" and answer.message.content in (None, "")
        assert answer.message.tool_calls[0].id and answer.message.tool_calls[0].type == "function"


@pytest.mark.case("C005")
def test_the_client_reads_parallel_calls_with_ids_of_their_own(tool_client: openai.OpenAI) -> None:
    for answer in whole_and_streamed(tool_client, "two"):
        assert calls_of(answer) == [("log_reading", SITE), ("open_valve", {"pct": 40})]
        assert len({call.id for call in answer.message.tool_calls}) == 2
        assert answer.message.content == "I will." and answer.finish_reason == "tool_calls"


def test_the_client_parses_arguments_by_a_model_and_tells_of_their_pieces(tool_client: openai.OpenAI) -> None:
    tools: Any = PARSED
    with tool_client.chat.completions.stream(model="m", messages=user("parse"), tools=tools) as stream:
        events = list(stream)
    pieces = [event.arguments_delta for event in events if event.type == "tool_calls.function.arguments.delta"]
    assert json.loads("".join(pieces)) == SITE and len(pieces) > 3
    for answer in (stream.get_final_completion(), tool_client.chat.completions.parse(model="m", messages=user("parse"), tools=tools)):
        assert [call.function.parsed_arguments for call in answer.choices[0].message.tool_calls or []] == [LogReading(**SITE)]


def test_each_of_several_choices_has_its_own_calls(tool_api: Any) -> None:
    fields = {"tools": TOOLS, "n": 2, "temperature": 1}
    whole, events = tool_api.chat("two", **fields)["choices"], tool_api.stream_chat("two", **fields)
    for index in (0, 1):
        calls = [call for choice in events.choices(index) for call in choice["delta"].get("tool_calls", [])]
        assert {call["index"] for call in calls} == {0, 1} and events.finish_reasons(index) == ["tool_calls"]
        assert [call["function"]["name"] for call in whole[index]["message"]["tool_calls"]] == ["log_reading", "open_valve"]
    assert len({call["id"] for choice in whole for call in choice["message"]["tool_calls"]}) == 4


@pytest.mark.case("C004", "C005")
@pytest.mark.parametrize(("choice", "num_calls"), [({}, 2), (REQUIRED, 2), (NAMED, 1)], ids=["auto", "required", "named"])
def test_the_chunks_of_a_call_have_name_id_and_type_once(tool_api: Any, choice: dict[str, Any], num_calls: int) -> None:
    deltas = [choice["delta"] for choice in tool_api.stream_chat("two", tools=TOOLS, **choice).choices()]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert list(dict.fromkeys(call["index"] for call in calls)) == list(range(num_calls))
    for index in range(num_calls):
        first, *others = [call for call in calls if call["index"] == index]
        assert set(first) == {"index", "id", "type", "function"} and first["function"]["name"] and first["type"] == "function"
        assert all(set(call) == {"index", "function"} and set(call["function"]) == {"arguments"} for call in others)
        assert len(others) > 1 and all(isinstance(call["function"]["arguments"], str) for call in (first, *others))
    assert "".join(delta.get("content", "") for delta in deltas) == "I will."


def test_one_call_is_kept_where_parallel_calls_are_not_wanted(tool_client: openai.OpenAI) -> None:
    for answer in whole_and_streamed(tool_client, "two", parallel_tool_calls=False):
        assert calls_of(answer) == [("log_reading", SITE)]


@pytest.mark.case("C007")
def test_a_call_without_arguments_has_an_empty_object(tool_client: openai.OpenAI) -> None:
    for answer in whole_and_streamed(tool_client, "time"):
        assert answer.message.tool_calls[0].function.arguments == "{}"


@pytest.mark.fault("G4")
@pytest.mark.parametrize(("stop", "end"), [([], None), (["oops"], "oops"), (["END"], " END")])
def test_what_is_no_call_stays_content(tool_client: openai.OpenAI, stop: list[str], end: str | None) -> None:
    text = ANSWERS["broken"]
    content = text if end is None else text[: text.index(end)]
    for answer in whole_and_streamed(tool_client, "broken", stop=stop):
        assert (answer.message.content.rstrip(), answer.message.tool_calls, answer.finish_reason) == (content, None, "stop")


@pytest.mark.fault("G3")
def test_a_call_that_is_cut_short_is_not_finished(tool_api: Any) -> None:
    whole = tool_api.chat("log", tools=TOOLS, max_tokens=55)["choices"][0]
    events = tool_api.stream_chat("log", tools=TOOLS, max_tokens=55)
    assert whole["finish_reason"] == "length" and events.finish_reasons() == ["length"]
    arguments = whole["message"]["tool_calls"][0]["function"]["arguments"]
    assert arguments and '{"site":"Åse \\"B\\"","celsius":-3.5}'.startswith(arguments)
    pieces = [call["function"]["arguments"] for choice in events.choices() for call in choice["delta"].get("tool_calls", [])]
    assert "".join(pieces) == arguments


@pytest.mark.fault("G4")
def test_a_stop_string_within_a_call_does_not_make_it_whole(tool_api: Any) -> None:
    choice = tool_api.chat("log", tools=TOOLS, stop=["celsius"])["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "celsius")
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"site":"Åse \\"B\\"","'


@pytest.mark.fault("G5")
def test_reasoning_is_apart_and_no_place_for_stop_strings(tool_client: openai.OpenAI) -> None:
    for answer in whole_and_streamed(tool_client, "think", stop=["END"]):
        assert answer.message.reasoning_content == answer.message.reasoning == "END is near"
        assert answer.message.content.rstrip() == "Well" and not answer.message.tool_calls
        assert answer.finish_reason == "stop"


def test_the_tokens_of_reasoning_are_counted_apart(tool_api: Any) -> None:
    def details(usage: dict[str, Any]) -> Any:
        return usage.get("completion_tokens_details")

    fields = {"n": 2, "temperature": 1, "stream_options": {"include_usage": True}}
    assert details(tool_api.chat("think")["usage"]) == {"reasoning_tokens": len("\nEND is near\n") + 2}
    assert details(tool_api.stream_chat("think", **fields).chunks[-1]["usage"]) == {"reasoning_tokens": 2 * len("\nEND is near\n") + 4}
    assert details(tool_api.chat("log", tools=TOOLS)["usage"]) == {"reasoning_tokens": 0}
    response = tool_api.post("/v1/responses", {"input": "think"}).json()
    assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": len("\nEND is near\n") + 2}


def test_reasoning_comes_before_a_call(tool_client: openai.OpenAI) -> None:
    for answer in whole_and_streamed(tool_client, "thought"):
        assert answer.message.reasoning == "I must." and calls_of(answer) == [("log_reading", SITE)]


def test_without_tools_a_call_is_text(tool_client: openai.OpenAI, tool_api: Any) -> None:
    for fields in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        choice = tool_api.chat("thought", **fields)["choices"][0]
        assert choice["message"]["reasoning"] == "I must." and "tool_calls" not in choice["message"]
        assert choice["message"]["content"] == LOG.removeprefix("<tool_call>").removesuffix("</tool_call>") and choice["finish_reason"] == "stop"


def test_logprobs_and_token_ids_are_those_of_all_tokens_of_a_call(tool_api: Any) -> None:
    fields = {"tools": TOOLS, "logprobs": True, "return_token_ids": True}
    whole = tool_api.chat("two", **fields)["choices"][0]
    choices = tool_api.stream_chat("two", **fields).choices()
    assert [entry for choice in choices for entry in (choice["logprobs"] or {}).get("content", [])] == whole["logprobs"]["content"]
    assert [token_id for choice in choices for token_id in choice.get("token_ids", [])] == whole["token_ids"]


@pytest.mark.case("C007", "C008")
def test_a_conversation_goes_on_after_a_call(tool_api: Any) -> None:
    def ask(arguments: str, **content: Any) -> Any:
        call = {"id": "c1", "type": "function", "function": {"name": "log_reading", "arguments": arguments}}
        messages = [*user("x"), {"role": "assistant", "tool_calls": [call], **content}, {"role": "tool", "tool_call_id": "c1", "content": "17.2"}]
        response = tool_api.post("/v1/chat/completions", {"messages": messages, "tools": TOOLS, "max_tokens": 1, "return_token_ids": True})
        assert response.status_code == 200, response.text
        return response.json()["prompt_token_ids"]

    assert ask("") == ask("{}") != ask('{"n": 4}')
    assert ask("{}", content=None) == ask("{}", content="") == ask("{}")
    prompt = tool_api.post("/detokenize", {"tokens": ask('{"n": 4}')}).json()["prompt"]
    assert '"log_reading", "arguments": {"n": 4}' in prompt and "17.2" in prompt


def test_the_reasoning_of_earlier_turns_reaches_the_template(tool_api: Any) -> None:
    def num_tokens(**fields: str) -> int:
        messages = [*user("x"), {"role": "assistant", "content": "y", **fields}, *user("z")]
        count: int = tool_api.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1}).json()["usage"]["prompt_tokens"]
        return count

    assert num_tokens(reasoning="why") == num_tokens(reasoning_content="why") > num_tokens()


def test_an_effort_of_none_tells_the_template_not_to_think(tool_api: Any) -> None:
    lengths = [
        tool_api.chat("x", max_tokens=1, **fields)["usage"]["prompt_tokens"] for fields in ({}, {"reasoning_effort": "high"}, {"reasoning_effort": "none"})
    ]
    assert lengths[0] == lengths[1] == lengths[2] - 2


def test_tools_are_refused_by_a_model_that_is_not_told_of_them(api: Any) -> None:
    for fields, param in (({"tools": TOOLS}, "tools"), ({"reasoning_effort": "low"}, "reasoning_effort"), ({"functions": []}, "functions")):
        response = api.post("/v1/chat/completions", {"messages": user("x"), **fields})
        assert response.status_code == 400 and response.json()["error"]["param"] == param
