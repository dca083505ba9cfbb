"""Structured outputs over HTTP: a real api before a real engine, by the official client."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import jsonschema
import openai
import pytest
from pydantic import BaseModel

MESSAGES: Any = [{"role": "user", "content": "Who wrote Hamlet? Answer in JSON."}]
SCHEMA = {
    "type": "object",
    "properties": {"author": {"type": "string", "maxLength": 20}, "born": {"type": "integer", "minimum": 0, "maximum": 2026}},
    "required": ["author", "born"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "author", "schema": SCHEMA, "strict": True}}
BOMB: Any = {"type": "json_schema", "json_schema": {"name": "bomb", "schema": {"type": "string", "pattern": "^(a|b|c){0,9000}$"}}}


class Author(BaseModel):
    author: str
    born: int


@pytest.mark.stress
@pytest.mark.case("C032", "C038")
@pytest.mark.fault("C4")
async def test_every_answer_has_its_form_and_every_wrong_form_is_a_400_of_its_own(start_replica: Callable[..., Any]) -> None:
    async with (
        start_replica(dtype="auto") as replica,
        openai.AsyncOpenAI(base_url=f"{replica.url}/v1", api_key="none", max_retries=0, timeout=120) as client,
    ):

        async def chat(**fields: Any) -> Any:
            return await client.chat.completions.create(model="smollm2", messages=MESSAGES, **{"max_tokens": 100, "seed": 1, **fields})

        async def refuse(**fields: Any) -> Any:
            with pytest.raises(openai.BadRequestError) as error:
                await chat(**fields)
            return error.value

        bomb = asyncio.create_task(refuse(response_format=BOMB))
        free, text = await asyncio.gather(chat(temperature=0), chat(temperature=0, response_format={"type": "text"}))
        assert free.choices[0].message.content == text.choices[0].message.content
        whole = await chat(n=2, response_format=FORMAT)
        for choice in whole.choices:
            assert choice.finish_reason == "stop"
            jsonschema.validate(json.loads(choice.message.content), SCHEMA)
        chunks = [chunk async for chunk in await chat(n=2, response_format=FORMAT, stream=True)]
        for choice in whole.choices:
            assert "".join(part.delta.content or "" for chunk in chunks for part in chunk.choices if part.index == choice.index) == choice.message.content
        anything = await chat(response_format={"type": "json_object"}, max_tokens=300)
        assert anything.choices[0].finish_reason == "length" or isinstance(json.loads(anything.choices[0].message.content), dict)
        cut = await chat(response_format=FORMAT, max_tokens=3)
        assert (cut.choices[0].finish_reason, cut.usage.completion_tokens) == ("length", 3) and cut.choices[0].message.content.startswith("{")
        chosen = await client.completions.create(model="smollm2", prompt="Tea or", extra_body={"structured_outputs": {"choice": [" coffee", " cake"]}})
        assert chosen.choices[0].text in (" coffee", " cake") and chosen.choices[0].finish_reason == "stop"
        for stream in (False, True):
            wrong = await refuse(extra_body={"structured_outputs": {"regex": "(a"}}, stream=stream)
            assert wrong.param == "structured_outputs.regex" and "parenthesis is not closed" in wrong.message
        assert "uniqueItems is not supported" in (await refuse(extra_body={"structured_outputs": {"json": {"type": "array", "uniqueItems": True}}})).message
        parsed = await client.chat.completions.parse(model="smollm2", messages=MESSAGES, response_format=Author, max_tokens=400, temperature=0)
        assert isinstance(parsed.choices[0].message.parsed, Author)
        refused = await bomb
        assert refused.param == "response_format.json_schema" and "it is too complex" in refused.message
        await client.close()
        await replica.stop()
