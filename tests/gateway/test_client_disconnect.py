"""A client that goes away ends its request in the engine."""

import contextlib
import random
import socket
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stoker_engine.testing import Script

Wait = Callable[[Callable[[], bool], str], None]
CHAT = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
COMPLETION = ("/v1/completions", {"prompt": ["x", "y"]})


@pytest.fixture(scope="module")
def slow(start_shared_api: Any) -> Any:
    return start_shared_api(step_seconds=0.01)


def send(api: Any, path: str, body: dict[str, Any]) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", api.port))
    data = msgspec.json.encode({"model": "m", "max_tokens": 5000, "ignore_eos": True, **body})
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


@pytest.mark.property("P66")
@pytest.mark.case("C077")
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), [CHAT, COMPLETION])
def test_a_disconnect_aborts_the_request(slow: Any, wait_for: Wait, path: str, body: dict[str, Any], stream: bool, n: int) -> None:  # noqa: FBT001
    aborted = slow.metric('stoker_request_success_total{finish_reason="abort"')
    num_requests = n * len(body.get("prompt", "x"))
    with send(slow, path, {**body, "stream": stream, "n": n, "seed": 1}):
        wait_for(lambda: slow.metric("stoker_num_requests_running") == num_requests, "the request runs")
    wait_for(lambda: slow.metric("stoker_num_requests_running") == 0, "the request is gone")
    assert slow.metric("stoker_kv_cache_usage_ratio") == 0
    assert slow.metric('stoker_request_success_total{finish_reason="abort"') > aborted


@pytest.mark.property("P66")
@pytest.mark.case("C077")
def test_a_disconnect_after_the_first_chunk_aborts_the_request(slow: Any, wait_for: Wait) -> None:
    with send(slow, CHAT[0], {**CHAT[1], "stream": True}) as connection:
        while b"data: " not in connection.recv(65536):
            continue
    wait_for(lambda: slow.metric("stoker_num_requests_running") == 0, "the request is gone")


@pytest.mark.case("C077")
def test_a_request_that_waits_is_aborted_too_and_its_neighbor_is_unharmed(start_api: Any, wait_for: Wait) -> None:
    api = start_api(Script(step_seconds=0.01), engine={"max_num_seqs": 1})
    expected = api.complete("neighbor", max_tokens=150)["choices"]
    with send(api, "/v1/completions", {"prompt": "neighbor", "max_tokens": 150, "ignore_eos": False}) as neighbor:
        wait_for(lambda: api.metric("stoker_num_requests_running") == 1, "the neighbor runs")
        with send(api, *CHAT):
            wait_for(lambda: api.metric("stoker_num_requests_waiting") == 1, "the request waits")
        wait_for(lambda: api.metric("stoker_num_requests_waiting") == 0, "the request is gone")
        answer = b""
        while b'"system_fingerprint"' not in answer:
            answer += neighbor.recv(65536)
    assert msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])["choices"] == expected


def test_a_client_that_leaves_in_the_middle_of_its_body_does_no_harm(slow: Any) -> None:
    with socket.create_connection(("127.0.0.1", slow.port)) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
    assert slow.complete("x", max_tokens=1)["usage"]["completion_tokens"] == 1


@pytest.mark.fault("C10")
def test_a_body_that_is_too_long_is_refused_before_it_is_read(start_api: Any) -> None:
    api = start_api(Script(), max_body_bytes=2048)
    response = api.post("/v1/completions", {"prompt": "x" * 4096})
    assert response.status_code == 413 and response.json()["error"]["code"] == "request_too_large"

    def endless() -> Any:
        for _ in range(100):
            yield b"x" * 1024

    response = api.client.post("/v1/completions", content=endless(), headers={"Content-Type": "application/json"})
    assert response.status_code == 413


@pytest.mark.property("P66")
def test_disconnects_at_random_moments_leave_nothing_behind(slow: Any, wait_for: Wait) -> None:
    moments = random.Random(7)
    for _ in range(40):
        path, body = moments.choice([CHAT, COMPLETION])
        with send(slow, path, {**body, "stream": moments.random() < 0.7, "n": moments.randint(1, 3), "seed": 1}) as connection:
            connection.settimeout(moments.random() * 0.05)
            with contextlib.suppress(TimeoutError):
                connection.recv(moments.randint(1, 4096))
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_ratio")
    wait_for(lambda: all(slow.metric(f"stoker_{name}") == 0 for name in names), "all are gone")
    assert slow.complete("x", max_tokens=2)["usage"]["completion_tokens"] == 2


@pytest.mark.property("P68")
def test_each_finished_request_is_counted_once(slow: Any, wait_for: Wait) -> None:
    def counted() -> float:
        page = slow.client.get("/metrics").text
        return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith("stoker_request_success_total{"))

    before = counted()
    for max_tokens in (1, 2, 3):
        slow.complete(["a", "b"], max_tokens=max_tokens)
    wait_for(lambda: counted() == before + 6, "six more are counted")
    by_source = [slow.metric(f'stoker_prompt_tokens_by_source_total{{model_name="m",source="{source}"}}') for source in ("local_compute", "local_cache_hit")]
    assert sum(by_source) == slow.metric("stoker_prompt_tokens_total")
