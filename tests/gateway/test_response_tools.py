"""Tools, reasoning and forms of the answer in /v1/responses and /v1/messages: a scripted model that thinks and writes Hermes calls."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import anthropic
import openai
import pytest

TEMPLATE = """{%- if tools -%}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>{%- endif -%}
{%- for m in messages -%}<|im_start|>{{ m.role }} {{ m.content }}
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif -%}
{%- for call in m.tool_calls or [] -%}<tool_call>{{ call.function | tojson }}</tool_call>{%- endfor -%}<|im_end|>
{%- endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant{%- endif -%}"""

PARAMETERS = {"type": "object", "properties": {"site": {"type": "string"}}}
CHAT_TOOLS = [{"type": "function", "function": {"name": "log_reading", "description": "Logs.", "parameters": PARAMETERS}}]
TOOLS: list[Any] = [{"type": "function", "name": "log_reading", "description": "Logs.", "parameters": PARAMETERS}]
CALL = '<tool_call>{"name":"log_reading","arguments":{"site":"Åse \\"B\\""}}</tool_call>'
ANSWERS = {
    "log": CALL,
    "all": f"<think>\nI must.\n</think>\n\nI will.\n{CALL}\n{CALL}",
    "think": "<think>Hm.</think>Well.",
    "after": f"First.\n{CALL}Last.",
}
LOGGED: list[Any] = [
    {"role": "user", "content": "log"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "log_reading", "arguments": '{"site":"A"}'}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "logged"},
]


@pytest.fixture(scope="module")
def tool_api(make_tool_api: Callable[..., AbstractContextManager[Any]]) -> Iterator[Any]:
    logged = json.loads(json.dumps(LOGGED).replace("null", '""'))
    logged[1]["tool_calls"][0]["function"]["arguments"] = {"site": "A"}
    chats = [([{"role": "user", "content": text}], tools, answer) for text, answer in ANSWERS.items() for tools in (None, CHAT_TOOLS)]
    with make_tool_api(TEMPLATE, [*chats, (logged, CHAT_TOOLS, "It is logged.")]) as api:
        yield api


def summary(response: Any) -> list[tuple[str, str]]:
    """What the items say, without their ids."""
    said = []
    for item in response.output:
        texts = [item.arguments] if item.type == "function_call" else [part.text for part in item.content]
        said.append((item.type, "".join(texts)))
    return said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log", [("function_call", '{"site":"Åse \\"B\\""}')]),
        ("think", [("reasoning", "Hm."), ("message", "Well.")]),
        ("all", [("reasoning", "I must."), ("message", "I will."), *[("function_call", '{"site":"Åse \\"B\\""}')] * 2]),
        ("after", [("message", "First."), ("function_call", '{"site":"Åse \\"B\\""}'), ("message", "\nLast.")]),
    ],
)
@pytest.mark.case("C030")
def test_every_kind_of_item_is_streamed_in_order_and_whole(tool_client: openai.OpenAI, text: str, expected: list[tuple[str, str]]) -> None:
    whole = tool_client.responses.create(model="m", input=text, tools=TOOLS)
    assert summary(whole) == expected
    events = list(tool_client.responses.create(model="m", input=text, tools=TOOLS, stream=True))
    final: Any = events[-1]
    assert summary(final.response) == expected and final.response.status == "completed"
    assert [event.sequence_number for event in events if event.type != "keepalive"] == list(range(len(events)))
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert done == final.response.output
    pieces: dict[str, str] = {}
    for event in events:
        if event.type.endswith(".delta"):
            pieces[event.item_id] = pieces.get(event.item_id, "") + event.delta
    assert list(pieces.values()) == [said for _, said in expected]


def test_the_clients_accumulation_is_the_answer(tool_client: openai.OpenAI) -> None:
    with tool_client.responses.stream(model="m", input="all", tools=TOOLS) as stream:
        assert [kind for kind, _ in summary(stream.get_final_response())] == ["reasoning", "message", "function_call", "function_call"]


def test_one_call_alone_is_given_where_only_one_is_wanted(tool_client: openai.OpenAI) -> None:
    answer = tool_client.responses.create(model="m", input="all", tools=TOOLS, parallel_tool_calls=False)
    assert [kind for kind, _ in summary(answer)] == ["reasoning", "message", "function_call"]
    assert answer.parallel_tool_calls is False and answer.tools[0].type == "function"


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "name": "log_reading"}])
def test_a_call_and_its_output_go_on(tool_client: openai.OpenAI, choice: Any) -> None:
    first: Any = tool_client.responses.create(model="m", input="log", tools=TOOLS, tool_choice=choice)
    (call,) = first.output
    assert call.name == "log_reading" and call.call_id and call.status == "completed"
    outputs: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "logged"}]
    second = tool_client.responses.create(model="m", input=outputs, previous_response_id=first.id, tools=TOOLS, max_output_tokens=1)
    replayed: Any = [{"role": "user", "content": "log"}, call.to_dict(), *outputs]
    again = tool_client.responses.create(model="m", input=replayed, tools=TOOLS, max_output_tokens=1)
    assert second.usage is not None and again.usage is not None and second.usage.input_tokens == again.usage.input_tokens
    kinds = [item.type for item in tool_client.responses.input_items.list(second.id, order="asc").data]
    assert kinds == ["message", "function_call", "function_call_output"]


def test_a_replayed_conversation_is_that_of_a_chat(tool_client: openai.OpenAI) -> None:
    items: Any = [
        {"role": "user", "content": "log"},
        {"type": "function_call", "call_id": "c1", "name": "log_reading", "arguments": '{"site":"A"}'},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "logged"}]},
    ]
    assert tool_client.responses.create(model="m", input=items, tools=TOOLS).output_text == "It is logged."


def test_no_tool_is_called_where_none_is_to_be(tool_client: openai.OpenAI) -> None:
    answer = tool_client.responses.create(model="m", input="log", tools=TOOLS, tool_choice="none")
    assert "function_call" not in [item.type for item in answer.output] and answer.tool_choice == "none"


def test_an_answer_that_is_cut_has_incomplete_items(tool_client: openai.OpenAI) -> None:
    answer: Any = tool_client.responses.create(model="m", input="think", max_output_tokens=2)
    assert answer.status == "incomplete" and [item.status for item in answer.output] == ["incomplete"]


def test_a_form_of_the_answer_is_echoed(tool_client: openai.OpenAI) -> None:
    wanted: Any = {"type": "json_schema", "name": "a", "schema": {"type": "object"}, "strict": None}
    answer = tool_client.responses.create(model="m", input="think", text={"format": wanted}, max_output_tokens=3)
    assert answer.text is not None and answer.text.format is not None and answer.text.format.type == "json_schema"


def test_tools_are_tokenized_as_a_chat_reads_them(tool_api: Any) -> None:
    messages = [{"role": "user", "content": "log"}]
    chat = tool_api.post("/v1/chat/completions", {"messages": messages, "tools": CHAT_TOOLS, "max_tokens": 1}).json()
    assert tool_api.post("/tokenize", {"messages": messages, "tools": CHAT_TOOLS}).json()["count"] == chat["usage"]["prompt_tokens"]


def test_answers_that_might_have_called_are_counted(tool_api: Any, tool_client: openai.OpenAI, wait_for: Any) -> None:
    def num_called() -> float:
        lines = tool_api.client.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("stoker_tool_call_parser_invocations_total") and '"called"' in line)

    before = num_called()
    tool_client.responses.create(model="m", input="log", tools=TOOLS)
    wait_for(lambda: num_called() == before + 1, "the call is counted")


MESSAGES_TOOLS: list[Any] = [{"name": "log_reading", "description": "Logs.", "input_schema": PARAMETERS}]
BLOCKS = {
    "log": [("tool_use", {"site": 'Åse "B"'})],
    "think": [("thinking", "Hm."), ("text", "Well.")],
    "after": [("text", "First."), ("tool_use", {"site": 'Åse "B"'}), ("text", "\nLast.")],
    "all": [("thinking", "I must."), ("text", "I will."), *[("tool_use", {"site": 'Åse "B"'})] * 2],
}


@pytest.fixture(scope="module")
def anthropic_client(tool_api: Any) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=tool_api.url, api_key="none", max_retries=0) as client:
        yield client


def said_by(message: Any) -> list[tuple[str, Any]]:
    return [(block.type, getattr(block, "input" if block.type == "tool_use" else block.type)) for block in message.content]


@pytest.mark.parametrize("text", list(BLOCKS))
def test_a_message_has_thinking_text_and_calls_streamed_and_whole(anthropic_client: anthropic.Anthropic, text: str) -> None:
    request: Any = {"model": "m", "max_tokens": 200, "messages": [{"role": "user", "content": text}], "tools": MESSAGES_TOOLS}
    whole = anthropic_client.messages.create(**request)
    with anthropic_client.messages.stream(**request) as stream:
        streamed = stream.get_final_message()
    assert said_by(whole) == said_by(streamed) == BLOCKS[text]
    assert whole.stop_reason == streamed.stop_reason == ("end_turn" if text == "think" else "tool_use")


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "log_reading", "disable_parallel_tool_use": True}])
def test_a_tool_is_used_and_its_result_goes_on(anthropic_client: anthropic.Anthropic, choice: Any) -> None:
    request: Any = {"model": "m", "max_tokens": 200, "tools": MESSAGES_TOOLS}
    asked = {"role": "user", "content": "log"}
    assert said_by(anthropic_client.messages.create(messages=[asked], tool_choice=choice, **request)) == BLOCKS["log"]
    used = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "log_reading", "input": {"site": "A"}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "logged"}]}]}
    assert said_by(anthropic_client.messages.create(messages=[asked, used, result], **request)) == [("text", "It is logged.")]
