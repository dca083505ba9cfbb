from typing import Any

import pytest

from stoker_engine.tokenizer import Tokenizer


@pytest.mark.case("C026")
@pytest.mark.parametrize("max_tokens", [1, 8])
def test_each_prompt_has_n_choices_numbered_in_its_order(api: Any, max_tokens: int) -> None:
    fields = {"n": 3, "max_tokens": max_tokens, "temperature": 1, "seed": 7, "ignore_eos": True}
    whole = api.complete(["one", "two"], **fields)
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3, 4, 5]
    assert whole["usage"]["completion_tokens"] == 6 * max_tokens
    assert whole["usage"]["prompt_tokens"] == sum(api.complete(prompt, max_tokens=1)["usage"]["prompt_tokens"] for prompt in ("one", "two"))
    alone = api.complete("two", **fields)
    assert [choice["text"] for choice in whole["choices"][3:]] == [choice["text"] for choice in alone["choices"]]


@pytest.mark.property("P65")
@pytest.mark.case("C026")
def test_streamed_choices_of_several_prompts_join_to_the_whole_answer(api: Any) -> None:
    fields = {"n": 3, "max_tokens": 8, "temperature": 1, "seed": 7}
    whole = api.complete(["one", "two"], **fields)
    events = api.stream_completion(["one", "two"], stream_options={"include_usage": True}, **fields)
    for choice in whole["choices"]:
        assert events.text(choice["index"]) == choice["text"]
        assert events.finish_reasons(choice["index"]) == [choice["finish_reason"]]
    assert events.chunks[-1]["choices"] == []
    assert {key: events.chunks[-1]["usage"][key] for key in ("prompt_tokens", "completion_tokens")} == {
        key: whole["usage"][key] for key in ("prompt_tokens", "completion_tokens")
    }
    assert events.num_done == 1


def test_what_is_wrong_with_the_last_of_many_prompts_is_told_before_the_answers_to_the_others_begin(api: Any) -> None:
    response = api.post("/v1/completions", {"prompt": [*["one"] * 200, ""], "max_tokens": 2, "stream": True})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "prompt")


def test_a_prompt_may_be_text_or_token_ids(api: Any, tokenizer: Tokenizer) -> None:
    token_ids = tokenizer.encode("greeting")
    texts = {api.complete(prompt)["choices"][0]["text"] for prompt in ("greeting", ["greeting"], token_ids, [token_ids])}
    assert texts == {"hello world"}


@pytest.mark.parametrize("as_ids", [False, True])
def test_echo_puts_the_prompt_before_the_text(api: Any, tokenizer: Tokenizer, as_ids: bool) -> None:  # noqa: FBT001
    prompt = tokenizer.encode("greeting") if as_ids else "greeting"
    assert api.complete(prompt, echo=True)["choices"][0]["text"] == "greetinghello world"
    assert api.stream_completion(prompt, echo=True).text() == "greetinghello world"


def test_text_offsets_find_each_token_in_the_text(api: Any) -> None:
    choice = api.complete("stops", echo=True, logprobs=2)["choices"][0]
    logprobs = choice["logprobs"]
    *tokens, last = zip(logprobs["tokens"], logprobs["text_offset"], strict=True)
    assert all(choice["text"].startswith(token, offset) for token, offset in tokens)
    assert last == ("<|im_end|>", len(choice["text"]))
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert all(len(top) in (2, 3) for top in logprobs["top_logprobs"][1:])


def test_text_offsets_count_characters_that_several_tokens_spell(api: Any) -> None:
    offsets = api.complete("emoji", logprobs=0)["choices"][0]["logprobs"]["text_offset"]
    assert offsets == [0, 2, 2, 2, 2, 3, 3, 4, 4, 4, 5, 6]


def test_streamed_logprobs_are_those_of_the_whole_answer(api: Any) -> None:
    fields = {"echo": True, "logprobs": 1}
    whole = api.complete("emoji", **fields)["choices"][0]["logprobs"]
    parts = [choice["logprobs"] for choice in api.stream_completion("emoji", **fields).choices() if choice["logprobs"]]
    assert {key: [item for part in parts for item in part[key]] for key in whole} == whole


def test_each_streamed_choice_has_the_logprobs_of_the_echo(api: Any, tokenizer: Tokenizer) -> None:
    prompts = ["one two", "greeting"]
    fields = {"echo": True, "logprobs": 1, "n": 3, "temperature": 1, "seed": 7, "max_tokens": 4}
    whole = api.complete(prompts, **fields)["choices"]
    events = api.stream_completion(prompts, **fields)
    assert len(whole) == 6
    for choice in whole:
        logprobs, prompt = choice["logprobs"], prompts[choice["index"] // 3]
        parts = [part["logprobs"] for part in events.choices(choice["index"]) if part["logprobs"]]
        assert {key: [item for part in parts for item in part[key]] for key in logprobs} == logprobs
        assert logprobs["token_logprobs"][0] is None and logprobs["text_offset"][0] == 0
        assert logprobs["text_offset"][len(tokenizer.encode(prompt))] == len(prompt)


def test_max_tokens_zero_with_echo_scores_the_prompt_alone(api: Any) -> None:
    answer = api.complete("greeting you", echo=True, max_tokens=0, logprobs=1)
    choice = answer["choices"][0]
    assert choice["text"] == "greeting you" and choice["finish_reason"] == "length"
    assert len(choice["logprobs"]["tokens"]) == answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"]
    events = api.stream_completion("greeting you", echo=True, max_tokens=0, logprobs=1, stream_options={"include_usage": True})
    assert events.text() == "greeting you" and events.finish_reasons() == ["length"]
    assert events.chunks[-1]["usage"]["completion_tokens"] == 0


def test_max_tokens_zero_without_echo_is_refused(api: Any) -> None:
    response = api.post("/v1/completions", {"prompt": "x", "max_tokens": 0})
    assert response.status_code == 400 and response.json()["error"]["param"] == "max_tokens"


def test_prompt_logprobs_and_token_ids_stand_on_the_choices(api: Any) -> None:
    answer = api.complete(["a b c", "d"], prompt_logprobs=1, return_token_ids=True, max_tokens=2)
    assert [len(choice["prompt_logprobs"]) for choice in answer["choices"]] == [len(choice["prompt_token_ids"]) for choice in answer["choices"]]
    assert [len(choice["token_ids"]) for choice in answer["choices"]] == [2, 2]


def test_a_prompt_that_is_too_long_fails_all_the_prompts_of_a_request(api: Any) -> None:
    response = api.post("/v1/completions", {"prompt": [[1, 2], [5] * 2000], "stream": True})
    assert response.status_code == 400 and response.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("prompt", [[], "", [[]], ["a", 1], [1.5], [-1], {"a": 1}, [2**40], ["a"] * 257, [49152]])
def test_a_malformed_prompt_is_refused(api: Any, prompt: object) -> None:
    response = api.post("/v1/completions", {"prompt": prompt})
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("prompt")
