"""A stream of a response or a message says what the whole answer says, for random requests of fixed seeds."""

import json
import random
from typing import Any

import pytest


def random_request(seed: int) -> dict[str, Any]:
    """The engine's tokens depend on all before them, so that each prompt has an answer of its own."""
    draw = random.Random(seed)
    request: dict[str, Any] = {"text": " ".join(draw.choices(["one", "zwei", "😀", "漢字", "<|im_end|>", "\n"], k=draw.randint(1, 9)))}
    request["limit"] = draw.randint(1, 40)
    if draw.random() < 0.5:
        request["stop"] = draw.sample(["a", "e ", "in", "\n", "the", "é"], k=2)
    request["wants_logprobs"] = draw.random() < 0.3
    return request


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
@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 250), marks=pytest.mark.stress)], ids=["few", "many"])
def test_streamed_and_whole_answers_of_both_apis_are_the_same(api: Any, seeds: range) -> None:
    for seed in seeds:
        request = random_request(seed)
        check_response(api, request)
        check_message(api, request)
