"""`openai` for Python of the tests' own environment against `stoker up` (tests/gateway has the rest, against scripts)."""

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pydantic
import pytest

pytestmark = pytest.mark.stress

QUESTION: Any = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY: Any = {"model": "smollm2", "temperature": 0}


class Animal(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    legs: int
    kind: Literal["bird", "mammal", "fish"]


@pytest.fixture
def client(smollm2_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{smollm2_url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_stream_and_a_response_say_what_the_whole_answer_says(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(messages=QUESTION, max_tokens=24, **GREEDY)
    assert "Paris" in (answer.choices[0].message.content or "")
    with client.chat.completions.stream(messages=QUESTION, max_tokens=24, **GREEDY) as stream:
        assert stream.get_final_completion().choices[0].message.content == answer.choices[0].message.content
    response = client.responses.create(input=QUESTION, max_output_tokens=24, **GREEDY)
    assert response.output_text == answer.choices[0].message.content
    with client.responses.stream(input=QUESTION, max_output_tokens=24, **GREEDY) as events:
        assert events.get_final_response().output_text == response.output_text


async def test_questions_at_once_get_the_answer_of_one_alone(smollm2_url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{smollm2_url}/v1", api_key="none", max_retries=0) as client:
        alone = await client.chat.completions.create(messages=QUESTION, max_tokens=24, **GREEDY)
        together = await asyncio.gather(*(client.chat.completions.create(messages=QUESTION, max_tokens=24, **GREEDY) for _ in range(8)))
    assert {answer.choices[0].message.content for answer in together} == {alone.choices[0].message.content}


def test_an_answer_is_an_instance_of_the_model_that_was_asked_for(client: openai.OpenAI) -> None:
    request: Any = {"messages": [{"role": "user", "content": "Describe a cat."}], "response_format": Animal, "max_tokens": 200}
    parsed = client.chat.completions.parse(**request, **GREEDY).choices[0].message.parsed
    with client.chat.completions.stream(**request, **GREEDY) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == parsed
    assert isinstance(parsed, Animal)
    assert isinstance(client.responses.parse(input="Describe a cat.", text_format=Animal, max_output_tokens=200, **GREEDY).output_parsed, Animal)
