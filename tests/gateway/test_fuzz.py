"""Any JSON body is answered with 2xx or 4xx, and the engine lives on."""

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker_gateway.openai.fields import CHAT_RULES, COMPLETION_RULES
from stoker_gateway.openai.request import ChatCompletionRequest, CompletionRequest

NAMES = sorted({*ChatCompletionRequest.__struct_fields__, *CompletionRequest.__struct_fields__, *CHAT_RULES.refused, *COMPLETION_RULES.ignored} - {"model"})
SETTINGS = settings(deadline=None, database=None, derandomize=True, max_examples=150, suppress_health_check=list(HealthCheck))
STRESS = settings(SETTINGS, max_examples=20000)

texts = st.text(max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-3, 40) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "developer", "tool"]), "content": texts | json_values},
        optional={"name": json_values, "tool_calls": json_values, "reasoning_content": json_values, "x": json_values},
    ),
    max_size=4,
)
plausible: dict[str, st.SearchStrategy[Any]] = {
    "messages": messages,
    "prompt": texts
    | st.lists(texts, max_size=3)
    | st.lists(st.integers(-2, 50000), max_size=8)
    | st.lists(st.lists(st.integers(0, 300), max_size=4), max_size=3),
    "max_tokens": st.integers(-1, 20),
    "max_completion_tokens": st.integers(-1, 20),
    "n": st.integers(-1, 4),
    "stop": texts | st.lists(texts, max_size=3),
    "logprobs": st.booleans() | st.integers(-1, 25),
    "top_logprobs": st.integers(-1, 25),
    "prompt_logprobs": st.integers(-2, 25),
    "seed": st.integers(),
    "temperature": st.floats(-1, 3),
    "stream": st.booleans(),
    "echo": st.booleans(),
    "logit_bias": st.dictionaries(st.integers(-2, 50000).map(str), st.floats(-150, 150), max_size=3),
}
valid_messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system", "developer"]), "content": texts}), min_size=1, max_size=3
)
base = st.fixed_dictionaries(
    {"model": st.just("m"), "max_tokens": st.integers(1, 6), "messages": valid_messages, "prompt": plausible["prompt"].filter(bool), "stream": st.booleans()}
)


def fields_of(names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: plausible.get(name, json_values) | json_values for name in names})


changes = st.lists(st.sampled_from(NAMES), max_size=3, unique=True).flatmap(fields_of)
bodies = st.builds(lambda valid, changed: {**valid, **changed}, base, changes)


def sent(api: Any, path: str, body: object) -> int:
    drop = "prompt" if "chat" in path else "messages"
    fields = {name: value for name, value in body.items() if name != drop} if isinstance(body, dict) else body
    data = msgspec.json.encode(fields)
    response = api.client.post(path, content=data, headers={"Content-Type": "application/json"})
    assert len(response.content) <= 16384 or response.status_code == 200
    if response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream"):
        assert response.text.count("data: [DONE]\n\n") == 1 and '{"error":' not in response.text
    status: int = response.status_code
    return status


def check(api: Any, path: str, body: object) -> None:
    assert sent(api, path, body) in (200, 400, 404)


@pytest.mark.property("P67")
@SETTINGS
@given(body=bodies | json_values)
def test_any_chat_body_is_answered(api: Any, body: object) -> None:
    check(api, "/v1/chat/completions", body)


@pytest.mark.property("P67")
@SETTINGS
@given(body=bodies | json_values)
def test_any_completion_body_is_answered(api: Any, body: object) -> None:
    check(api, "/v1/completions", body)


@SETTINGS
@given(data=st.binary(max_size=200))
def test_any_bytes_are_answered(api: Any, data: bytes) -> None:
    assert api.client.post("/v1/completions", content=data, headers={"Content-Type": "application/json"}).status_code == 400


@pytest.mark.stress
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_great_many_bodies_are_answered(api: Any, path: str) -> None:
    STRESS(given(body=bodies)(lambda body: check(api, path, body)))()
    assert api.status("/readyz") == 200


def test_after_all_of_them_the_engine_serves_and_holds_nothing(api: Any) -> None:
    assert api.status("/readyz") == 200
    assert api.complete("x", max_tokens=1)["usage"]["completion_tokens"] == 1
    assert api.metric("stoker_num_requests_running") == api.metric("stoker_num_requests_waiting") == api.metric("stoker_kv_cache_usage_ratio") == 0
