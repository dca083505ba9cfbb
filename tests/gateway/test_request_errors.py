from typing import Any

import psutil
import pytest

MESSAGES = [{"role": "user", "content": "x"}]
CHAT = "/v1/chat/completions"


def error_of(response: Any) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/json"
    error: dict[str, Any] = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"} and isinstance(error["message"], str)
    return error


@pytest.mark.case("C015")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), [(CHAT, {"messages": MESSAGES}), ("/v1/completions", {"prompt": "x"})])
def test_an_unknown_model_is_not_found(api: Any, path: str, body: dict[str, Any], stream: bool) -> None:  # noqa: FBT001
    response = api.post(path, {**body, "model": "no-such-model", "stream": stream})
    error = error_of(response)
    assert response.status_code == 404
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", "model", "model_not_found")


@pytest.mark.case("C015")
@pytest.mark.parametrize(("method", "path", "code"), [("GET", "/v1/models/no-such-model", "model_not_found"), ("POST", "/v1/nonexistent", "unknown_url")])
def test_an_unknown_path_or_model_page_is_not_found(api: Any, method: str, path: str, code: str) -> None:
    response = api.client.request(method, path)
    assert response.status_code == 404 and error_of(response)["code"] == code


def test_a_method_that_a_path_does_not_have_names_those_that_it_has(api: Any) -> None:
    response = api.client.get(CHAT)
    assert response.status_code == 405 and response.headers["allow"] == "POST"
    error_of(response)


MALFORMED = [
    b'{"model":"m",',
    b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}',
    b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}',
    b'{"model":"m","messages":[{"role":"user","content":"\\ud800 and more"}]}',
    b'{"model":"m","messages":[{"role":"user","content":"\\udc00 and more"}]}',
    b'{"model":"m","messages":[{"role":"user","content":"x"}],"stop":["\\ud800\\u0041"]}',
    b"",
    b"[]",
    b"[" * 10000,
    b'{"messages":[]}',
    b'{"model":"m","messages":[]}',
    b'{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":1e999}',
]


@pytest.mark.case("C016")
@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_body_is_a_bad_request(api: Any, body: bytes) -> None:
    response = api.client.post(CHAT, content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    error_of(response)
    assert api.status("/health") == 200
    assert api.chat("greeting")["choices"][0]["message"]["content"] == "hello world"


@pytest.mark.case("C016")
def test_a_body_of_another_media_type_is_refused(api: Any) -> None:
    response = api.client.post(CHAT, content=b'{"model":"m"}', headers={"Content-Type": "text/plain"})
    assert response.status_code == 415
    error_of(response)


def test_a_body_without_a_media_type_is_taken_as_json(api: Any) -> None:
    response = api.client.post(CHAT, content=b'{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":1}')
    assert "content-type" not in response.request.headers and response.status_code == 200


@pytest.mark.case("C017")
@pytest.mark.parametrize("path", [CHAT, "/v1/responses"])
def test_an_error_names_the_first_fault_and_repeats_no_input(api: Any, path: str) -> None:
    process = psutil.Process(api.process.pid)
    before = process.memory_info().rss
    response = api.post(path, {"messages": [{"role": "user", "content": {"bad": 1}}] * 5000})
    assert 400 <= response.status_code <= 404 and len(response.content) <= 16384
    assert path != CHAT or error_of(response)["param"] == "messages[0].content"
    assert process.memory_info().rss - before < 50 << 20


@pytest.mark.case("C017")
@pytest.mark.parametrize("field", ["\u0001" * 100000, "€" * 100000, "x" * 100000])
def test_an_error_about_a_huge_name_is_small(api: Any, field: str) -> None:
    for body in ({"messages": MESSAGES, field: 1}, {"messages": [{"role": field, "content": "x"}]}, {"model": field, "messages": MESSAGES}):
        response = api.post(CHAT, body)
        assert response.status_code in (400, 404) and len(response.content) <= 16384


OUT_OF_RANGE = [
    ("n", 0),
    ("temperature", -1),
    ("temperature", 2.5),
    ("top_p", 1.5),
    ("presence_penalty", 3),
    ("max_tokens", -5),
    ("logit_bias", {"abc": 1}),
    ("logit_bias", {"49152": 1}),
    ("logit_bias", {"1": 101}),
    ("stop_token_ids", [49152]),
    ("allowed_token_ids", []),
    ("seed", 2**70),
    ("top_k", -2),
    ("priority", 1),
    ("min_tokens", 10**6),
    ("bad_words", [""]),
    ("cache_salt", ""),
    ("repetition_penalty", 0),
    ("repetition_penalty", 1e-36),
]


@pytest.mark.case("C027")
@pytest.mark.parametrize(("name", "value"), OUT_OF_RANGE)
def test_an_invalid_parameter_of_a_stream_is_a_bad_request(api: Any, name: str, value: object) -> None:
    response = api.post(CHAT, {"messages": MESSAGES, "stream": True, name: value}, timeout=5)
    assert response.status_code == 400
    assert error_of(response)["param"] == name


def test_an_unknown_field_is_refused_by_name(api: Any) -> None:
    error = error_of(api.post(CHAT, {"messages": MESSAGES, "not_a_field": 1}))
    assert error["param"] == "not_a_field" and error["message"] == "Unrecognized request argument supplied: not_a_field"


@pytest.mark.parametrize("fields", [{"stream_options": {"include_usage": True}}, {"stream": True, "prompt_logprobs": 1}, {"stream_options": {"x": 1}}])
def test_fields_that_do_not_go_together_are_refused(api: Any, fields: dict[str, Any]) -> None:
    assert api.post(CHAT, {"messages": MESSAGES, **fields}).status_code == 400


@pytest.mark.case("C011")
def test_a_role_that_no_one_knows_is_refused(api: Any) -> None:
    response = api.post(CHAT, {"messages": [{"role": "narrator", "content": "x"}]})
    assert response.status_code == 400 and error_of(response)["param"] == "messages[0].role"


@pytest.mark.case("C008")
def test_a_tool_message_that_answers_no_call_is_refused(api: Any) -> None:
    response = api.post(CHAT, {"messages": [*MESSAGES, {"role": "tool", "tool_call_id": "c1", "content": "1"}]})
    assert response.status_code == 400 and error_of(response)["param"] == "messages[1].tool_call_id"


@pytest.mark.fault("C10")
@pytest.mark.parametrize("field", ["prompt", "bad_words", "allowed_token_ids"])
def test_millions_of_values_are_refused_before_they_are_made(api: Any, field: str) -> None:
    body = b'{"model": "m", "prompt": "x", "%s": [%s1]}' % (field.encode(), b"1," * (1 << 21))
    response = api.client.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 413 and error_of(response)["code"] == "request_too_large"


@pytest.mark.fault("C10")
def test_a_million_token_ids_are_too_long_for_the_context(api: Any) -> None:
    response = api.post("/v1/completions", {"prompt": [1] * 1_000_000})
    assert response.status_code == 400 and error_of(response)["code"] == "context_length_exceeded"
    assert "1000000 tokens" in error_of(response)["message"]


@pytest.mark.fault("C10")
def test_a_chat_of_more_messages_than_fit_any_context_is_refused(api: Any) -> None:
    response = api.post(CHAT, {"messages": [{"role": "user", "content": ""}] * 16385})
    assert response.status_code == 400 and error_of(response)["param"] == "messages"


def test_a_body_of_megabytes_is_read_whole(api: Any) -> None:
    response = api.post("/v1/completions", {"prompt": "x " * (1 << 21)})
    assert response.status_code == 400 and error_of(response)["code"] == "context_length_exceeded"
