"""Choices and texts of the real model, as a client of the API sees them."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from stoker_engine.tokenizer import Tokenizer

CHOICES = {"model": "smollm2", "prompt": ["one", "two"], "n": 3, "max_tokens": 8, "temperature": 1, "seed": 7}


async def complete(http: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    response = await http.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def streamed_texts(http: httpx.AsyncClient, body: dict[str, Any]) -> dict[int, str]:
    response = await http.post("/v1/completions", json={**body, "stream": True})
    events = [event.removeprefix("data: ") for event in response.text.split("\n\n") if event]
    assert events.pop() == "[DONE]"
    texts: dict[int, str] = {}
    for choice in (choice for event in events for choice in json.loads(event)["choices"]):
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return texts


async def check_choices(http: httpx.AsyncClient) -> None:
    first, second = [(await complete(http, CHOICES))["choices"] for _ in range(2)]
    assert [choice["index"] for choice in first] == list(range(6))
    assert first == second
    texts = [choice["text"] for choice in first]
    assert len(set(texts[:3])) > 1 and len(set(texts[3:])) > 1
    assert await streamed_texts(http, CHOICES) == dict(enumerate(texts))


async def check_defaults(http: httpx.AsyncClient) -> None:
    nulls = dict.fromkeys(["max_tokens", "temperature", "top_p", "stop", "n", "seed", "logprobs", "stream"])
    answer = await complete(http, {"model": "smollm2", "prompt": "x", "ignore_eos": True, **nulls})
    (choice,) = answer["choices"]
    assert answer["usage"]["completion_tokens"] == 16 and choice["logprobs"] is None


async def check_token_ids(http: httpx.AsyncClient, vocab_size: int) -> None:
    body = {"model": "smollm2", "prompt": "The", "n": 8, "temperature": 2, "seed": 1, "max_tokens": 24, "logprobs": 5, "ignore_eos": True}
    answer = await complete(http, {**body, "return_token_ids": True})
    token_ids = [token_id for choice in answer["choices"] for token_id in choice["token_ids"]]
    assert len(token_ids) == 192 and max(token_ids) < vocab_size
    refused = await http.post("/v1/completions", json={"model": "smollm2", "prompt": [vocab_size]})
    assert refused.status_code == 400


async def check_min_tokens(http: httpx.AsyncClient, eos: int) -> None:
    async def token_ids(min_tokens: int, wanted: int, **fields: Any) -> list[int]:
        body = {"model": "smollm2", "prompt": "The", "temperature": 0, "max_tokens": 12, "return_token_ids": True}
        answer = await complete(http, {**body, "min_tokens": min_tokens, "logit_bias": {wanted: 100}, **fields})
        (choice,) = answer["choices"]
        assert choice["finish_reason"] == ("length" if answer["usage"]["completion_tokens"] == 12 else "stop")
        return choice["token_ids"]

    *answers, stopped, ignored = await asyncio.gather(
        *(token_ids(min_tokens, eos) for min_tokens in (0, 1, 4, 12)), token_ids(5, 11, stop_token_ids=[11]), token_ids(3, 49151, ignore_eos=True)
    )
    assert [len(answer) for answer in answers] == [1, 2, 5, 12]
    assert [answer.index(eos) for answer in answers[:3]] == [0, 1, 4] and eos not in answers[3]
    assert len(stopped) == 6 and stopped.index(11) == 5 and eos not in stopped
    assert ignored == [49151] * 12
    refused = await http.post("/v1/completions", json={"model": "smollm2", "prompt": "The", "min_tokens": 13, "max_tokens": 12})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "min_tokens"


async def check_characters(url: str) -> None:
    """The model goes on with a pattern whose characters take several tokens each."""
    ask: Any = {"model": "smollm2", "prompt": "漢字 😀 " * 12 + "漢字", "temperature": 0, "max_tokens": 40}
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        whole = (await client.completions.create(**ask)).choices[0].text
        stream = await client.completions.create(stream=True, **ask)
        pieces = [choice.text async for chunk in stream for choice in chunk.choices]
    assert "漢字 😀" in whole and "\ufffd" not in whole[:-1]
    assert "".join(pieces) == whole
    assert not any("\ufffd" in piece for piece in pieces[:-1])


@pytest.mark.case("C014", "C026", "C045", "C046", "C060")
async def test_choices_differ_and_seeds_and_characters_come_back(start_replica: Callable[..., Any], tokenizer: Tokenizer) -> None:
    async with start_replica(max_num_seqs=32) as replica:
        async with httpx.AsyncClient(base_url=replica.url, timeout=60) as http:
            await check_choices(http)
            await check_defaults(http)
            await check_token_ids(http, tokenizer.vocab_size)
            await check_min_tokens(http, tokenizer.eos_token_ids[0])
        await check_characters(replica.url)
