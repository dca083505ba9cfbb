"""The official client, unmodified."""

from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest

from stoker_engine.testing import Script


class City(pydantic.BaseModel):
    city: str
    letters: list[str]


@pytest.fixture
def client(api: Any) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{api.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_it_chats(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "greeting"}])
    assert answer.choices[0].message.content == "hello world" and answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None and answer.usage.prompt_tokens_details is not None


def test_it_streams_with_usage(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": "emoji"}]}]
    chunks = list(client.chat.completions.create(model="m", messages=messages, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "hi😀é漢!"
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens > 0


def test_it_accumulates_a_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "greeting"}]) as stream:
        assert stream.get_final_completion().choices[0].message.content == "hello world"


async def test_it_streams_asynchronously(api: Any) -> None:
    async with openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key="none", max_retries=0) as client:
        messages: Any = [{"role": "user", "content": "emoji"}]
        async with client.chat.completions.stream(model="m", messages=messages) as stream:
            deltas = [event.delta async for event in stream if event.type == "content.delta"]
            assert "".join(deltas) == (await stream.get_final_completion()).choices[0].message.content == "hi😀é漢!"


def test_it_parses_an_answer_into_the_model_that_it_asked_for(client: openai.OpenAI) -> None:
    request: Any = {"model": "m", "messages": [{"role": "user", "content": "city"}], "response_format": City}
    with client.chat.completions.stream(**request) as stream:
        streamed = stream.get_final_completion()
    answers = [client.chat.completions.parse(**request).choices[0].message.parsed, streamed.choices[0].message.parsed]
    answers.append(client.responses.parse(model="m", input="city", text_format=City).output_parsed)
    assert answers == [City(city="Åse", letters=["Å", "😀"])] * 3


def test_it_completes_with_logprobs_and_echo(client: openai.OpenAI) -> None:
    choice = client.completions.create(model="m", prompt="greeting", logprobs=2, echo=True).choices[0]
    assert choice.text == "greetinghello world"
    assert choice.logprobs is not None and choice.logprobs.tokens is not None and choice.logprobs.text_offset is not None
    assert len(choice.logprobs.tokens) == len(choice.logprobs.text_offset)


def test_it_replays_its_own_answers(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "greeting"}])
    history: Any = [{"role": "user", "content": "greeting"}, answer.choices[0].message, {"role": "user", "content": "and now"}]
    assert client.chat.completions.create(model="m", messages=history, max_tokens=1).usage is not None


def test_it_lists_models(client: openai.OpenAI) -> None:
    assert [(model.id, model.owned_by) for model in client.models.list()] == [("m", "stoker"), ("m-alias", "stoker")]
    assert client.models.retrieve("m-alias").id == "m-alias"


@pytest.mark.case("C015")
def test_it_raises_not_found_with_the_message(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no-such-model"):
        client.chat.completions.create(model="no-such-model", messages=[{"role": "user", "content": "x"}], stream=True)


def test_it_raises_bad_request_with_the_field(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="m", prompt="x", temperature=3)
    assert caught.value.param == "temperature"


@pytest.mark.case("C018")
def test_it_raises_bad_request_for_a_prompt_that_is_too_long(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "word " * 2000}])
    assert caught.value.code == "context_length_exceeded"


@pytest.mark.fault("G11", "G12")
def test_it_raises_the_error_of_a_stream_whose_engine_died(start_api: Any) -> None:
    api = start_api(Script(step_seconds=0.02))
    with openai.OpenAI(base_url=f"{api.url}/v1", api_key="none", max_retries=0) as client:
        messages: Any = [{"role": "user", "content": "x"}]
        stream = client.chat.completions.create(model="m", messages=messages, max_tokens=5000, extra_body={"ignore_eos": True}, stream=True)
        next(stream)
        api.engine.process.kill()
        with pytest.raises(openai.APIError, match="the engine is gone") as caught:
            list(stream)
    assert caught.value.code == "engine_dead"
