import contextlib
import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from stoker_engine.testing import Script

CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
OPEN = ("/", "/livez", "/readyz", "/startupz", "/health", "/load", "/metrics", "/metrics/vllm")
PAGE = "https://chat.example.org"


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text("# of the web page\nfirst-key\n\n  second-key  \n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def guarded(make_api: Callable[..., Any], key_file: Path) -> Any:
    with make_api(Script(step_seconds=0.02, max_model_len=1024), api_keys_file=str(key_file), cors_allow_origins=(PAGE,), request_timeout="900ms") as api:
        yield api


def with_key(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.property("P69")
@pytest.mark.parametrize("headers", [with_key("first-key"), {"authorization": "bearer second-key"}, {"x-api-key": "first-key"}])
def test_a_request_with_a_key_is_served(guarded: Any, headers: dict[str, str]) -> None:
    assert guarded.client.post(CHAT, json=BODY, headers=headers).status_code == 200


WRONG = [{}, with_key("wrong"), with_key("first-key2"), with_key("# of the web page"), {"authorization": "Basic first-key"}, with_key("ü")]


@pytest.mark.property("P69")
@pytest.mark.parametrize(("path", "headers"), [*((CHAT, wrong) for wrong in WRONG), ("/v1/models", {}), ("/sleep", {}), ("/nowhere", {})])
def test_a_request_without_one_is_refused_in_the_words_of_the_api(guarded: Any, path: str, headers: dict[str, str]) -> None:
    method = "POST" if path == CHAT else "GET"
    response = guarded.client.request(method, path, json=BODY, headers={name: value.encode() for name, value in headers.items()})
    assert response.status_code == 401 and response.headers["www-authenticate"] == "Bearer" and response.headers["x-request-id"]
    error = response.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "invalid_api_key")
    assert "first-key" not in response.text


@pytest.mark.property("P69")
@pytest.mark.parametrize(("method", "path", "status"), [("HEAD", "/v1/models", 401), ("OPTIONS", "/v1/models", 401), ("HEAD", "/livez", 200)])
def test_methods_without_a_body_are_guarded_alike(guarded: Any, method: str, path: str, status: int) -> None:
    assert guarded.client.request(method, path).status_code == status


@pytest.mark.property("P69")
@pytest.mark.parametrize("path", OPEN)
def test_probes_and_metrics_need_no_key(guarded: Any, path: str) -> None:
    assert guarded.client.get(path).status_code == 200


def test_the_openai_client_says_that_its_key_is_wrong(guarded: Any) -> None:
    client = openai.OpenAI(base_url=f"{guarded.url}/v1", api_key="wrong", max_retries=0)
    with client, pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    assert guarded.metric('stoker_requests_refused_total{model_name="m",reason="unauthorized"}') >= 1


@pytest.mark.property("P69")
def test_a_page_of_an_allowed_origin_may_ask_before_it_sends_its_key(guarded: Any) -> None:
    asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    response = guarded.client.options(CHAT, headers=asked)
    assert response.status_code == 200 and response.headers["access-control-allow-origin"] == PAGE
    assert "authorization" in response.headers["access-control-allow-headers"].lower()


def test_it_may_read_answers_and_refusals(guarded: Any) -> None:
    for headers, status in ((with_key("first-key"), 200), ({}, 401)):
        response = guarded.client.post(CHAT, json=BODY, headers={"Origin": PAGE, **headers})
        assert (response.status_code, response.headers["access-control-allow-origin"]) == (status, PAGE)
        assert "x-request-id" in response.headers["access-control-expose-headers"].lower()


def test_a_page_of_another_origin_may_not(guarded: Any, api: Any) -> None:
    for server in (guarded, api):
        for origin in ("https://elsewhere.example", "null", "", f"https://{server.url.rpartition('/')[2]}.example", "http://[", f"{PAGE}/", "file://"):
            response = server.client.post(CHAT, json=BODY, headers={"Origin": origin, "Sec-Fetch-Site": "cross-site", **with_key("first-key")})
            assert (response.status_code, response.json()["error"]["code"]) == (403, "origin_not_allowed"), origin
            assert "access-control-allow-origin" not in response.headers
        for method, path in (("GET", "/v1/models"), ("GET", "/livez")):
            assert server.client.request(method, path, headers={"Origin": "https://elsewhere.example", **with_key("first-key")}).status_code == 200


def test_a_page_of_this_host_may(guarded: Any, api: Any) -> None:
    for server in (guarded, api):
        own = [{"Origin": server.url}, {"Origin": "https://Chat.example", "Host": "chat.example:443"}]
        for headers in (*own, {"Origin": "https://chat.example", "Sec-Fetch-Site": "same-origin"}):
            response = server.client.post(CHAT, json=BODY, headers={**headers, **with_key("first-key")})
            assert response.status_code == 200, headers


@pytest.mark.parametrize("depth", [65, 500, 900, 100_000])
@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
def test_a_body_that_is_nested_too_deeply_is_refused(api: Any, path: str, depth: int) -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        value = f"{opening * depth}{closing * depth}" if opening == "[" else f"{opening * depth}1{closing * depth}"
        body = f'{{"model":"m","prompt":"x","messages":[],"metadata":{value}}}'
        response = api.client.post(path, content=body, headers={"Content-Type": "application/json"})
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (400, "invalid_json") and "nested too deeply" in error["message"]
    assert api.status("/readyz") == 200


def test_a_body_of_63_levels_below_the_first_is_not_too_deep(api: Any) -> None:
    value = "[" * 63 + "]" * 63
    body = f'{{"model":"m","prompt":"x","max_tokens":1,"metadata":{value}}}'
    assert api.client.post("/v1/completions", content=body, headers={"Content-Type": "application/json"}).status_code == 200


def test_a_request_that_takes_too_long_ends_in_the_engine_too(guarded: Any, wait_for: Callable[..., None]) -> None:
    aborted = 'stoker_request_success_total{finish_reason="abort"'
    num_aborted = guarded.metric(aborted)
    long = {**BODY, "max_tokens": 900, "ignore_eos": True}
    batch = {"model": "m", "prompt": ["a", "b"], "max_tokens": 900, "n": 2, "temperature": 1, "ignore_eos": True}
    asked = [(CHAT, long), (CHAT, {**long, "stream": True}), ("/v1/completions", batch)]
    with ThreadPoolExecutor() as threads:
        answers = threads.map(lambda request: guarded.client.post(request[0], json=request[1], headers=with_key("first-key")), asked)
    whole, streamed, several = answers
    assert (whole.status_code, several.status_code) == (504, 504) and whole.json()["error"]["code"] == "request_timeout"
    events = [event for event in streamed.text.split("\n\n") if event]
    assert '"choices":[{' in events[0] and '"code":"request_timeout"' in events[-2] and events[-1] == "data: [DONE]"
    wait_for(lambda: guarded.metric("stoker_num_requests_running") == 0, "the engine runs nothing")
    assert guarded.metric(aborted) - num_aborted == 6


def exchange(api: Any, *pieces: bytes) -> bytes:
    """What comes back until the connection is closed."""
    with socket.create_connection(("127.0.0.1", api.port), timeout=30) as connection:
        answer = b""
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65536):
                answer += piece
        return answer


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        [HEAD + b"X: " + b"x" * 70_000 + b"\r\n\r\n"],
        [HEAD, *[b"X: " + b"x" * 10_000 + b"\r\n"] * 7, b"\r\n"],
        [HEAD, *[b"X: x\r\n"] * 300, b"\r\n"],
        [b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n"],
        [b"GET /v1/models HTTP/1.1\r\nX: ", *[b"x" * 10_000] * 7],
        [HEAD + b"Transfer-Encoding: chunked\r\n\r\n2;" + b"x" * 90_000],
    ],
)
def test_headers_without_end_are_refused(api: Any, pieces: list[bytes]) -> None:
    answer = exchange(api, *pieces)
    assert answer.startswith(b"HTTP/1.1 431 ") and json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "headers_too_large"
    assert api.status("/readyz") == 200


def test_what_is_no_http_is_refused_in_the_words_of_the_api(api: Any) -> None:
    answer = exchange(api, b"\x16\x03\x01 nonsense\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ") and json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"


def test_long_headers_and_long_bodies_are_not_the_same(api: Any) -> None:
    text = "a" * 300_000
    response = api.client.post("/v1/completions", json={"model": "m", "prompt": "x", "max_tokens": 1, "user": text}, headers={"X": "x" * 60_000})
    assert response.status_code == 200
    kept = api.client.post("/v1/completions", content=iter([b'{"model":"m","prompt":"x","max_tokens":1,"user":"', *[b"a" * 50_000] * 6, b'"}']))
    assert kept.status_code == 200


@pytest.mark.stress
def test_a_running_api_heeds_a_secret_that_changes(start_api: Callable[..., Any], wait_for: Callable[..., None], tmp_path: Path) -> None:
    for version in ("old", "new"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "keys").write_text(f"{version}-key\n", encoding="utf-8")
    (tmp_path / "..data").symlink_to("old")
    api = start_api(Script(), api_keys_file=str(tmp_path / "..data" / "keys"))

    def status(key: str) -> int:
        code: int = api.client.post(CHAT, json=BODY, headers=with_key(key)).status_code
        return code

    assert (status("old-key"), status("new-key")) == (200, 401)
    (tmp_path / "next").symlink_to("new")
    (tmp_path / "next").replace(tmp_path / "..data")
    wait_for(lambda: status("new-key") == 200, "the new key is taken")
    assert status("old-key") == 401
