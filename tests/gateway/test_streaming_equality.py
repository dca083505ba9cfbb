"""A stream of a completion, a response or a message says what the whole answer says, for random requests of fixed seeds."""

import json
import random
from typing import Any

import pytest

from stoker_engine.tokenizer import Tokenizer


def random_request(seed: int) -> dict[str, Any]:
    """The engine's tokens depend on all before them, so that each prompt has an answer of its own."""
    draw = random.Random(seed)
    request: dict[str, Any] = {"text": " ".join(draw.choices(["one", "zwei", "😀", "漢字", "<|im_end|>", "\n"], k=draw.randint(1, 9)))}
    request["limit"] = draw.randint(1, 40)
    if draw.random() < 0.5:
        request["stop"] = draw.sample(["a", "e ", "in", "\n", "the", "é"], k=2)
    request["wants_logprobs"] = draw.random() < 0.3
    return request


def random_completion(api: Any, tokenizer: Tokenizer, seed: int) -> dict[str, Any]:
    """A stop string is one that comes: in what is said without it."""
    draw = random.Random(seed)
    prompts: list[Any] = [" ".join(draw.choices(["one", "zwei", "😀", "漢字", "emoji", "\n"], k=draw.randint(1, 6))) for _ in range(draw.choice([1, 1, 2, 3]))]
    if draw.random() < 0.4:
        prompts = [tokenizer.encode(prompt) for prompt in prompts]
    request: dict[str, Any] = {"prompt": prompts[0] if len(prompts) == 1 else prompts, "max_tokens": draw.randint(1, 40), "echo": draw.random() < 0.3}
    if draw.random() < 0.5:
        text = api.complete(**request)["choices"][0]["text"]
        start = draw.randrange(max(1, len(text) - 1))
        request |= {"stop": [text[start : start + draw.randint(1, 6)] or "a", "漢é"], "include_stop_str_in_output": draw.random() < 0.3}
    if draw.random() < 0.2:
        request |= {"n": draw.randint(2, 3), "temperature": 1}
    if draw.random() < 0.5:
        request |= {"logprobs": draw.randint(0, 3)}
    if request["echo"] and draw.random() < 0.2:
        request["max_tokens"] = 0
    return request | {"return_token_ids": draw.random() < 0.3, "skip_special_tokens": draw.random() < 0.8}


def merged_completion(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client has when the stream is over."""
    choices: dict[int, dict[str, Any]] = {}
    for given in (choice for chunk in chunks for choice in chunk["choices"]):
        choice = choices.setdefault(given["index"], {**given, "text": "", "logprobs": None, "token_ids": []})
        assert choice["finish_reason"] is None or choice["text"] == ""
        choice |= {"text": choice["text"] + given["text"], "token_ids": choice["token_ids"] + given.get("token_ids", [])}
        choice |= {name: given[name] for name in ("finish_reason", "stop_reason")}
        if given["logprobs"] is not None:
            earlier = choice["logprobs"] or {name: [] for name in given["logprobs"]}
            choice["logprobs"] = {name: earlier[name] + entries for name, entries in given["logprobs"].items()}
    assert not chunks[-1]["choices"] and all(chunk["choices"] and chunk["usage"] is None for chunk in chunks[:-1])
    return {"choices": [choices[index] for index in sorted(choices)], "usage": chunks[-1]["usage"]}


def check_completion(api: Any, tokenizer: Tokenizer, seed: int) -> None:
    """Neither answer finds the other's prompt in the prefix cache."""
    request = random_completion(api, tokenizer, seed)
    whole = api.complete(**request, cache_salt=f"whole {seed}")
    streamed = merged_completion(api.stream_completion(**request, cache_salt=f"stream {seed}", stream_options={"include_usage": True}).chunks)
    assert streamed == {"choices": [{"token_ids": [], **choice} for choice in whole["choices"]], "usage": whole["usage"]}


def data_of(response: Any) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    return [json.loads(line.removeprefix("data: ")) for line in response.text.split("\n") if line.startswith("data: ")]


def without_own(response: dict[str, Any]) -> dict[str, Any]:
    """Without ids, times, and what the prefix cache happened to serve."""
    kept = {name: value for name, value in response.items() if name not in ("id", "created_at", "completed_at", "usage")}
    kept["output"] = [{**item, "id": ""} for item in response["output"]]
    return kept | {"output_tokens": response["usage"]["output_tokens"], "input_tokens": response["usage"]["input_tokens"]}


def check_response(api: Any, request: dict[str, Any]) -> None:
    body = {"input": request["text"], "max_output_tokens": request["limit"], "stop": request.get("stop"), "store": False}
    if request["wants_logprobs"]:
        body |= {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    whole = api.post("/v1/responses", body).json()
    events = data_of(api.post("/v1/responses", {**body, "stream": True}))
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    (part,) = whole["output"][0]["content"]
    assert without_own(events[-1]["response"]) == without_own(whole)
    assert "".join(event["delta"] for event in deltas) == part["text"]
    assert [entry for event in deltas for entry in event["logprobs"]] == part["logprobs"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def check_message(api: Any, request: dict[str, Any]) -> None:
    body = {"messages": [{"role": "user", "content": request["text"]}], "max_tokens": request["limit"], "stop_sequences": request.get("stop")}
    whole = api.post("/v1/messages", body).json()
    events = data_of(api.post("/v1/messages", {**body, "stream": True}))
    text = "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
    assert text == "".join(block["text"] for block in whole["content"])
    assert events[-2]["delta"] == {name: whole[name] for name in ("stop_reason", "stop_sequence")}
    assert events[-2]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


@pytest.mark.property("P65")
@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 504), marks=pytest.mark.stress)], ids=["few", "many"])
def test_streamed_and_whole_answers_are_the_same(api: Any, tokenizer: Tokenizer, seeds: range) -> None:
    for seed in seeds:
        check_completion(api, tokenizer, seed)
        request = random_request(seed)
        check_response(api, request)
        check_message(api, request)
