"""Requests at the edge of a context of 32 tokens."""

from typing import Any

import pytest


@pytest.fixture(scope="module")
def small(start_shared_api: Any) -> Any:
    return start_shared_api(max_model_len=32)


@pytest.mark.case("C018")
@pytest.mark.parametrize(("num_prompt", "max_tokens", "num_output"), [(31, 1, 1), (20, 12, 12)])
def test_prompt_and_output_may_fill_the_context(small: Any, num_prompt: int, max_tokens: int, num_output: int) -> None:
    answer = small.complete([5] * num_prompt, max_tokens=max_tokens, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == num_output and answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.case("C018")
@pytest.mark.parametrize(("num_prompt", "max_tokens"), [(32, 1), (40, None), (20, 13), (31, 16), (20, 10**6)])
def test_one_token_more_is_refused_with_the_numbers(small: Any, num_prompt: int, max_tokens: int | None) -> None:
    response = small.post("/v1/completions", {"prompt": [5] * num_prompt, "max_tokens": max_tokens})
    error = response.json()["error"]
    assert response.status_code == 400 and error["code"] == "context_length_exceeded"
    assert all(str(number) in error["message"] for number in (32, num_prompt, max_tokens or 16))
    assert small.complete([5], max_tokens=1)["usage"]["completion_tokens"] == 1


@pytest.mark.case("C018")
def test_a_chat_without_a_limit_ends_with_the_context(small: Any) -> None:
    answer = small.chat("", ignore_eos=True)
    assert answer["usage"]["total_tokens"] == 32 and answer["choices"][0]["finish_reason"] == "length"
