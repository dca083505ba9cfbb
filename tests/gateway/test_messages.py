"""Anthropic's Messages API, and its official client, unmodified."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic.types import message_count_tokens_params as counting
from anthropic.types import message_create_params as creating

from stoker_gateway.anthropic.request import COUNT_TOKENS_RULES, MESSAGES_RULES, CountTokensRequest, MessagesRequest

HI = [{"role": "user", "content": "greeting"}]


@pytest.fixture
def client(api: Any) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=api.url, api_key="none", max_retries=0) as client:
        yield client


def ask(api: Any, messages: Any = HI, **fields: Any) -> Any:
    return api.post("/v1/messages", {"max_tokens": 50, "messages": messages, **fields})


def test_it_answers(client: anthropic.Anthropic) -> None:
    message = client.messages.create(model="m", max_tokens=50, messages=[{"role": "user", "content": "greeting"}])
    assert [(block.type, block.text) for block in message.content if block.type == "text"] == [("text", "hello world")]
    assert (message.stop_reason, message.stop_sequence, message.usage.output_tokens) == ("end_turn", None, 3)


def test_it_accumulates_a_stream(client: anthropic.Anthropic) -> None:
    with client.messages.stream(model="m", max_tokens=50, messages=[{"role": "user", "content": "emoji"}]) as stream:
        assert "".join(stream.text_stream) == "hi😀é漢!"
        message = stream.get_final_message()
    assert message.stop_reason == "end_turn" and message.usage.output_tokens > 3


def test_it_counts_tokens(client: anthropic.Anthropic) -> None:
    fields: Any = {"model": "m", "system": "Be brief.", "messages": [{"role": "user", "content": [{"type": "text", "text": "one two three"}]}]}
    usage = client.messages.create(max_tokens=1, **fields).usage
    assert client.messages.count_tokens(**fields).input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


@pytest.mark.parametrize(("status", "kind", "fields"), [(400, anthropic.BadRequestError, {"max_tokens": 0}), (404, anthropic.NotFoundError, {"model": "x"})])
def test_errors_are_the_clients_own(client: anthropic.Anthropic, status: int, kind: type[anthropic.APIStatusError], fields: dict[str, Any]) -> None:
    with pytest.raises(kind) as caught:
        client.messages.create(**{"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "a"}], **fields})
    assert caught.value.status_code == status and isinstance(caught.value.body, dict) and caught.value.body["type"] == "error"


def test_the_client_learns_the_requests_id(api: Any) -> None:
    with anthropic.Anthropic(base_url=api.url, api_key="none", max_retries=0, default_headers={"X-Request-Id": "mine"}) as client:
        message = client.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "greeting"}])
        assert message._request_id == "mine" and message.id == "msg-mine"
        with pytest.raises(anthropic.NotFoundError) as caught:
            client.messages.count_tokens(model="x", messages=[{"role": "user", "content": "greeting"}])
    assert caught.value.request_id == "mine"
    assert "request-id" not in api.client.get("/v1/models").headers


def test_the_events_of_a_stream_come_in_order(api: Any) -> None:
    blocks = ask(api, stream=True).text.split("\n\n")[:-1]
    events = [json.loads(block.split("\ndata: ")[1]) for block in blocks]
    assert [block.split("\n")[0] for block in blocks] == [f"event: {event['type']}" for event in events]
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"] and kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert events[0]["message"]["content"] == [] and events[0]["message"]["stop_reason"] is None
    whole = ask(api).json()
    assert "".join(event["delta"]["text"] for event in events[2:-3]) == whole["content"][0]["text"]
    assert events[-2]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    ("prompt", "fields", "text", "stop"),
    [
        ("stops", {"stop_sequences": ["DEFG", "zz"]}, "abc", ("stop_sequence", "DEFG")),
        ("stops", {"max_tokens": 2}, "abc", ("max_tokens", None)),
        ("stops", {}, "abcDEFGh", ("end_turn", None)),
    ],
)
def test_the_stop_reason_says_why(api: Any, prompt: str, fields: dict[str, Any], text: str, stop: tuple[str, str | None], is_streamed: bool) -> None:  # noqa: FBT001
    response = ask(api, [{"role": "user", "content": prompt}], stream=is_streamed, **fields)
    if is_streamed:
        events = [json.loads(line.removeprefix("data: ")) for line in response.text.split("\n") if line.startswith("data: ")]
        deltas = "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
        assert (deltas, *events[-2]["delta"].values()) == (text, *stop)
    else:
        message = response.json()
        assert (message["content"][0]["text"], message["stop_reason"], message["stop_sequence"]) == (text, *stop)


def test_a_message_reads_what_a_chat_reads(api: Any) -> None:
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]
    said = ask(api, messages, system=system, temperature=0, max_tokens=6).json()
    chat = api.post("/v1/chat/completions", {"messages": [{"role": "system", "content": "Be brief."}, *messages], "temperature": 0, "max_tokens": 6}).json()
    assert said["content"][0]["text"] == chat["choices"][0]["message"]["content"]


def test_an_answer_that_was_begun_is_continued(api: Any) -> None:
    messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "The answer"}]
    said = ask(api, messages, temperature=0, max_tokens=6).json()
    chat = api.post("/v1/chat/completions", {"messages": messages, "continue_final_message": True, "temperature": 0, "max_tokens": 6}).json()
    assert said["content"][0]["text"] == chat["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 5000}, "maximum context length"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"tools": [{"name": "f", "input_schema": {}}]}, "tools"),
        ({"tools": [{"name": "web_search", "type": "web_search_20250305"}]}, "tools[0]"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "a"}]}]}, "tool_call_id matches no earlier"),
        ({"output_config": {"effort": "low"}}, "effort"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"container": "c"}, "container"),
        ({"max_completion_tokens": 3}, "max_completion_tokens"),
    ],
)
def test_what_is_wrong_is_named(api: Any, fields: dict[str, Any], words: str) -> None:
    response = ask(api, **{"messages": HI, **fields})
    body = response.json()
    assert response.status_code == 400 and body["type"] == "error" and body["error"]["type"] == "invalid_request_error"
    assert words in body["error"]["message"] and body["request_id"] == response.headers["X-Request-Id"]


def test_no_documented_field_is_unknown() -> None:
    kinds = (creating.MessageCreateParamsBase, creating.MessageCreateParamsNonStreaming, creating.MessageCreateParamsStreaming)
    known = {*MessagesRequest.__struct_fields__, *MESSAGES_RULES.ignored, *MESSAGES_RULES.refused}
    assert {field for kind in kinds for field in kind.__annotations__} - known == set()
    known = {*CountTokensRequest.__struct_fields__, *COUNT_TOKENS_RULES.ignored, *COUNT_TOKENS_RULES.refused}
    assert set(counting.MessageCountTokensParams.__annotations__) - known == set()
