from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

junk = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda item: st.lists(item, max_size=3) | st.dictionaries(st.text(max_size=4), item, max_size=3),
    max_leaves=5,
)
FIELDS = (
    *("n", "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stream", "stream_options", "logprobs", "top_logprobs"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "bad_words", "allowed_token_ids", "stop_token_ids", "prompt_logprobs"),
    *("response_format", "tools", "user", "echo", "priority", "cache_salt", "best_of", "suffix", "no_such_field"),
)
PROMPTS = {
    "/v1/chat/completions": ("messages", [{"role": "user", "content": "hi"}]),
    "/v1/completions": ("prompt", "hi"),
}
fields = st.dictionaries(st.sampled_from(FIELDS), junk | st.integers(-2, 3) | st.floats(-3, 3), max_size=3)


@pytest.mark.property("P67")
@pytest.mark.parametrize("path", PROMPTS)
def test_any_fields_are_answered_or_refused(api: Any, path: str) -> None:
    name, prompt = PROMPTS[path]

    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @given(body=fields)
    def check(body: dict[str, Any]) -> None:
        response = api.post(path, {name: prompt, "max_tokens": 4, **body})
        assert response.status_code == 200 or response.json()["error"]["message"], response.text
        assert response.status_code < 500, response.text

    check()
    assert api.status("/readyz") == 200


@pytest.mark.property("P67")
@pytest.mark.parametrize("path", PROMPTS)
def test_any_json_instead_of_a_prompt_is_answered_or_refused(api: Any, path: str) -> None:
    name, _ = PROMPTS[path]

    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @given(value=junk | st.lists(st.fixed_dictionaries({}, optional={"role": st.sampled_from(["user", "tool", ""]), "content": junk}), max_size=2))
    def check(value: Any) -> None:
        response = api.post(path, {name: value, "max_tokens": 4})
        assert response.status_code < 500, response.text

    check()
    assert api.status("/readyz") == 200
