"""The official client's Responses API, unmodified."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest


@pytest.fixture
def client(api: Any) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{api.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_it_creates_and_goes_on(client: openai.OpenAI) -> None:
    first = client.responses.create(model="m", input="greeting")
    assert first.output_text == "hello world" and first.status == "completed"
    assert first.usage is not None and first.usage.input_tokens_details.cached_tokens >= 0
    context: Any = [{"role": "user", "content": "greeting"}, *first.output, {"role": "user", "content": "more"}]
    fields: Any = {"model": "m", "max_output_tokens": 4, "temperature": 0}
    replayed = client.responses.create(input=context, **fields)
    assert client.responses.create(input="more", previous_response_id=first.id, **fields).output_text == replayed.output_text


def test_it_streams(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="m", input="emoji", stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "hi😀é漢!"
    assert events[-1].type == "response.completed" and events[-1].response.output_text == "hi😀é漢!"


def test_it_accumulates_a_stream(client: openai.OpenAI) -> None:
    with client.responses.stream(model="m", input="greeting", include=["message.output_text.logprobs"], top_logprobs=2) as stream:
        assert {"response.output_text.delta", "response.completed"} <= {event.type for event in stream}
        assert stream.get_final_response().output_text == "hello world"


def test_it_accumulates_a_stream_of_one_token(client: openai.OpenAI) -> None:
    asked: list[Any] = [({"max_output_tokens": 1}, "incomplete", "hello"), ({"extra_body": {"stop": ["hello"]}}, "completed", "")]
    for fields, status, text in asked:
        with client.responses.stream(model="m", input="greeting", **fields) as stream:
            events: list[Any] = list(stream)
        for event, kind in zip(events, ("response.created", "response.in_progress"), strict=False):
            assert (event.type, event.response.status, event.response.output, event.response.usage) == (kind, "in_progress", [], None)
        final = events[-1].response
        assert (events[-1].type, final.status, final.output_text, final.usage.output_tokens) == (f"response.{status}", status, text, 1)


def test_it_fetches_lists_and_deletes(client: openai.OpenAI) -> None:
    created = client.responses.create(model="m", input="greeting")
    assert client.responses.retrieve(created.id) == created
    (item,) = client.responses.input_items.list(created.id).data
    assert item.type == "message" and item.role == "user"
    client.responses.delete(created.id)
    with pytest.raises(openai.NotFoundError, match="not found"):
        client.responses.retrieve(created.id)


def test_it_cancels_what_runs_in_the_background(client: openai.OpenAI) -> None:
    created = client.responses.create(model="m", input="hi", background=True, extra_body={"ignore_eos": True})
    assert created.status == "queued"
    cancelled = client.responses.cancel(created.id)
    assert cancelled.status in ("cancelled", "incomplete")
    assert client.responses.retrieve(created.id).status == cancelled.status


async def test_it_streams_asynchronously_from_the_background(api: Any) -> None:
    async with openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key="none", max_retries=0) as client:
        stream = await client.responses.create(model="m", input="greeting", background=True, stream=True)
        events = [event async for event in stream]
        assert events[-1].type == "response.completed"
        again = await client.responses.retrieve(events[-1].response.id, stream=True, starting_after=events[-2].sequence_number)
        assert [event async for event in again] == events[-1:]


def test_what_is_refused_is_named(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="conversation is not supported") as caught:
        client.responses.create(model="m", input="a", conversation="conv_1")
    assert caught.value.param == "conversation"
