from typing import Any

import pytest

from stoker_engine.tokenizer import Tokenizer

LONG = "one two three four five six seven eight nine ten " * 40


def seen(answer: dict[str, Any]) -> list[int]:
    """The prompt that the engine got."""
    return answer["choices"][0].get("prompt_token_ids") or answer["prompt_token_ids"]


@pytest.mark.parametrize("num_tokens", [1, 7, 100_000])
def test_the_last_tokens_of_a_prompt_stay(api: Any, tokenizer: Tokenizer, num_tokens: int) -> None:
    token_ids = tokenizer.encode(LONG)
    for prompt in (LONG, token_ids):
        answer = api.complete(prompt, truncate_prompt_tokens=num_tokens, max_tokens=1, return_token_ids=True)
        assert seen(answer) == token_ids[-num_tokens:]
    streamed = api.stream_completion(LONG, truncate_prompt_tokens=num_tokens, max_tokens=1, return_token_ids=True)
    assert seen(streamed.chunks[0]) == token_ids[-num_tokens:]


def test_each_of_several_prompts_is_truncated(api: Any, tokenizer: Tokenizer) -> None:
    answer = api.complete([LONG, "greeting"], truncate_prompt_tokens=9, max_tokens=1, return_token_ids=True)
    assert [choice["prompt_token_ids"] for choice in answer["choices"]] == [tokenizer.encode(LONG)[-9:], tokenizer.encode("greeting")]


def test_a_chat_is_truncated(api: Any) -> None:
    whole = seen(api.chat("hi", max_tokens=1, return_token_ids=True))
    assert seen(api.chat("hi", max_tokens=1, return_token_ids=True, truncate_prompt_tokens=5)) == whole[-5:]


@pytest.mark.parametrize("text", ["word " * 3000, "word " * 200_000])
def test_minus_one_keeps_what_leaves_room_for_the_output(api: Any, tokenizer: Tokenizer, text: str) -> None:
    answer = api.complete(text, truncate_prompt_tokens=-1, max_tokens=24, return_token_ids=True)
    assert seen(answer) == tokenizer.encode("word " * 3000)[-1000:]
    assert answer["usage"]["completion_tokens"] == 24


def test_an_echo_is_what_the_model_has_read(api: Any, tokenizer: Tokenizer) -> None:
    choice = api.complete(LONG, truncate_prompt_tokens=4, echo=True, logprobs=0, max_tokens=2)["choices"][0]
    assert choice["text"].startswith(tokenizer.decode(tokenizer.encode(LONG)[-4:]))
    assert len(choice["logprobs"]["tokens"]) == 6


@pytest.mark.parametrize(("num_tokens", "fields"), [(0, {}), (-2, {}), ("3", {}), (1.5, {}), (-1, {"max_tokens": 1024})])
def test_no_other_number_is_taken(api: Any, num_tokens: Any, fields: dict[str, Any]) -> None:
    response = api.post("/v1/completions", {"prompt": "a", "truncate_prompt_tokens": num_tokens, **fields})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == ("max_tokens" if fields else "truncate_prompt_tokens")
