import json
from typing import Any

import pytest

ORDER = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]


def respond(api: Any, text: Any = "greeting", **fields: Any) -> dict[str, Any]:
    response = api.post("/v1/responses", {"input": text, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def stream(api: Any, text: Any = "greeting", **fields: Any) -> list[dict[str, Any]]:
    response = api.post("/v1/responses", {"input": text, "stream": True, **fields})
    assert response.status_code == 200, response.text
    return events_of(response.text)


def events_of(text: str) -> list[dict[str, Any]]:
    events = []
    for block in text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def text_of(response: dict[str, Any]) -> str:
    (item,) = response["output"]
    (part,) = item["content"]
    return part["text"]


def error_of(response: Any, status: int = 400) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert len(response.content) < 4096
    return response.json()["error"]


def test_a_response_is_a_message_of_the_assistant(api: Any) -> None:
    answer = respond(api, temperature=0.5, metadata={"a": "b"}, instructions=None)
    assert text_of(answer) == "hello world" and answer["status"] == "completed"
    assert answer["output"][0]["role"] == "assistant" and answer["output"][0]["status"] == "completed"
    assert (answer["temperature"], answer["metadata"], answer["error"], answer["incomplete_details"]) == (0.5, {"a": "b"}, None, None)
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] and usage["output_tokens"] == 3


@pytest.mark.case("C030")
@pytest.mark.parametrize(("text", "fields"), [("greeting", {}), ("stops", {"stop": ["DEFG"]}), ("emoji", {}), ("greeting", {"stop": ["hello"]})])
def test_a_stream_has_its_events_in_order(api: Any, text: str, fields: dict[str, Any]) -> None:
    events = stream(api, text, **fields)
    kinds = [event["type"] for event in events]
    assert list(dict.fromkeys(kinds)) == [kind for kind in [*ORDER, "response.completed"] if kind in kinds or kind != "response.output_text.delta"]
    final = events[-1]["response"]
    deltas = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    by_kind = {event["type"]: event for event in events}
    assert deltas == by_kind["response.output_text.done"]["text"] == text_of(final) == text_of(respond(api, text, **fields))
    assert by_kind["response.output_item.done"]["item"] == final["output"][0]
    assert {event["item_id"] for event in events if "item_id" in event} == {final["output"][0]["id"]}


@pytest.mark.case("C030")
def test_an_answer_that_is_cut_is_incomplete(api: Any) -> None:
    events = stream(api, "anything else", max_output_tokens=12)
    whole = respond(api, "anything else", max_output_tokens=12)
    for answer in (events[-1]["response"], whole):
        assert answer["status"] == "incomplete" and answer["incomplete_details"] == {"reason": "max_output_tokens"}
        assert answer["usage"]["output_tokens"] == 12 and answer["output"][0]["status"] == "incomplete"
    assert events[-1]["type"] == "response.incomplete" and text_of(whole) == text_of(events[-1]["response"])


def test_a_response_says_what_a_chat_says(api: Any) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    last = {"role": "user", "content": [{"type": "text", "text": "three"}, {"type": "text", "text": "four"}]}
    fields: dict[str, Any] = {"seed": 5, "temperature": 0, "ignore_eos": True}
    chat = api.post("/v1/chat/completions", {"messages": [*messages, last], "max_tokens": 9, **fields}).json()
    parts = [{"type": "input_text", "text": "three"}, {"type": "input_text", "text": "four"}]
    said = {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "two", "annotations": []}],
    }
    answer = respond(api, [messages[1], said, {"role": "user", "content": parts}], instructions="Be brief.", max_output_tokens=9, **fields)
    assert text_of(answer) == chat["choices"][0]["message"]["content"]
    assert answer["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]


def test_log_probabilities_are_those_of_a_chat(api: Any) -> None:
    fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    expected = api.chat("greeting", logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
    assert respond(api, **fields)["output"][0]["content"][0]["logprobs"] == expected
    events = stream(api, **fields)
    assert [entry for event in events if event["type"] == "response.output_text.delta" for entry in event["logprobs"]] == expected


def test_a_conversation_goes_on_from_an_earlier_response(api: Any) -> None:
    fields: dict[str, Any] = {"max_output_tokens": 5, "temperature": 0}
    first = respond(api, "one", instructions="Only now.", **fields)
    second = respond(api, "two", previous_response_id=first["id"], **fields)
    texts = ["one", text_of(first), "two"]
    messages = [{"role": role, "content": text} for role, text in zip(("user", "assistant", "user"), texts, strict=True)]
    chat = api.post("/v1/chat/completions", {"messages": messages, "max_tokens": 5, "temperature": 0}).json()
    assert text_of(second) == chat["choices"][0]["message"]["content"] and second["previous_response_id"] == first["id"]
    items = api.client.get(f"/v1/responses/{second['id']}/input_items?order=asc").json()
    assert [item["content"][0]["text"] for item in items["data"]] == texts


def test_input_items_come_in_pages(api: Any) -> None:
    answer = respond(api, [{"role": "user", "content": str(number)} for number in range(5)], max_output_tokens=1)
    url = f"/v1/responses/{answer['id']}/input_items"
    page = api.client.get(f"{url}?limit=2").json()
    assert [item["content"][0]["text"] for item in page["data"]] == ["4", "3"] and page["has_more"]
    rest = api.client.get(f"{url}?after={page['last_id']}").json()
    assert [item["content"][0]["text"] for item in rest["data"]] == ["2", "1", "0"] and not rest["has_more"]
    assert error_of(api.client.get(f"{url}?after=other"))["param"] == "after"
    for query in ("limit=0", "limit=101", "order=up", "page=1"):
        error = error_of(api.client.get(f"{url}?{query}"))
        assert (error["code"], error["param"]) == ("invalid_query", query.partition("=")[0])


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_response_is_kept_until_it_is_deleted(api: Any, is_streamed: bool) -> None:  # noqa: FBT001
    answer = stream(api)[-1]["response"] if is_streamed else respond(api)
    url = f"/v1/responses/{answer['id']}"
    assert api.client.get(url).json() == answer
    assert api.client.delete(url).json() == {"id": answer["id"], "object": "response.deleted", "deleted": True}
    for response in (api.client.get(url), api.client.delete(url), api.client.get(f"{url}/input_items"), api.client.post(f"{url}/cancel")):
        assert error_of(response, 404)["code"] == "response_not_found"
    assert error_of(api.post("/v1/responses", {"input": "a", "previous_response_id": answer["id"]}))["code"] == "previous_response_not_found"


def test_a_response_that_is_not_stored_is_not_kept(api: Any) -> None:
    answer = respond(api, store=False)
    assert answer["store"] is False and api.status(f"/v1/responses/{answer['id']}") == 404


@pytest.mark.case("C017")
def test_the_error_for_a_huge_invalid_input_is_small(api: Any) -> None:
    error = error_of(api.post("/v1/responses", {"input": [{"role": "user", "content": {"bad": 1}}] * 5000}))
    assert error["param"] == "input[0].content"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"content": "a"}]}, "input[0].role"),
        ({"input": [{"role": "tool", "content": "a"}]}, "input[0].role"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "a"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        ({"temperature": 3}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 5000}, "max_output_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"include": ["all"]}, "include"),
        ({"stream_options": {}}, "stream_options"),
        ({"background": True, "store": False}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"truncation": "auto"}, "truncation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "a"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input[0].arguments"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        ({"text": {"format": {"type": "json_schema", "name": "a", "strict": True, "schema": {"type": "object"}}}}, "text.format"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "f"}] * 2}, "tools[1]"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "function", "name": "f"}]}, "tools"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"max_tokens": 5}, "max_tokens"),
    ],
)
def test_what_is_wrong_is_named(api: Any, fields: dict[str, Any], param: str) -> None:
    error = error_of(api.post("/v1/responses", {"input": "a", **fields}))
    assert (error["param"] or "").startswith(param)


@pytest.mark.parametrize("body", [{"background": True}, {"stream": True}, {}])
def test_a_prompt_that_is_too_long_is_refused_at_once(api: Any, body: dict[str, Any]) -> None:
    assert error_of(api.post("/v1/responses", {"input": "word " * 2000, **body}))["code"] == "context_length_exceeded"
