"""The gateway before real apis with scripted engines: what a client, an api or an engine does that ends early."""

import json
import os
import random
import resource
import signal
import socket
import string
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import msgspec
import pytest

from stoker_engine.testing import Script

Wait = Callable[..., None]
CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}], "ignore_eos": True, "max_tokens": 5000}
PATH = "/v1/chat/completions"
ABORTED = 'stoker_request_success_total{finish_reason="abort"'
NUM_AT_ONCE = 100
LETTERS = string.ascii_letters + string.digits + "-_./%{}\"'\\é\u202e 漢"


@pytest.fixture(scope="module")
def replica(make_api: Any) -> Iterator[Any]:
    with make_api(Script(step_seconds=0.05), engine={"max_num_seqs": NUM_AT_ONCE}) as api:
        yield api


@pytest.fixture(scope="module")
def gateway(replica: Any, start_module_gateway: Any, static_model: Any, wait_for: Wait) -> Any:
    """The file limit of a login shell; the second model's requests may take 0.3 s."""
    address = f"127.0.0.1:{replica.port}"
    shell = ("sh", "-c", 'ulimit -Sn 64; exec "$@"', "sh")
    hurried = json.loads(static_model("m-alias", address, timeouts={"request": "300ms"}).partition("=")[2])
    started = start_module_gateway(static_model("m", address), f"--static-model={json.dumps(hurried)}", prefix=shell)
    wait_for(started.is_ready, "the gateway knows its models")
    return started


def send(gateway: Any, body: dict[str, Any]) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", gateway.port))
    data = msgspec.json.encode({**CHAT, **body})
    connection.sendall(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    return connection


def is_idle(gateway: Any, api: Any) -> bool:
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_ratio")
    return gateway.num_in_flight() == 0 == api.client.get("/load").json()["inFlight"] and all(api.metric(f"stoker_{name}") == 0 for name in names)


@pytest.mark.case("C077")
@pytest.mark.parametrize("num_waves", [1, pytest.param(10, marks=pytest.mark.stress)])
def test_clients_that_leave_end_their_requests_in_gateway_api_and_engine(gateway: Any, replica: Any, wait_for: Wait, num_waves: int) -> None:
    for _ in range(num_waves):
        aborted = replica.metric(ABORTED)
        clients = [send(gateway, {"stream": index % 2 == 0}) for index in range(NUM_AT_ONCE)]
        wait_for(lambda: replica.metric("stoker_num_requests_running") == NUM_AT_ONCE, "all run at once, with more connections than files were allowed")
        assert gateway.num_in_flight() == NUM_AT_ONCE
        for client in clients:
            client.close()
        wait_for(lambda: is_idle(gateway, replica), "nothing is left of them")
        assert replica.metric(ABORTED) - aborted == NUM_AT_ONCE
    assert httpx.post(gateway.url + PATH, json={**CHAT, "max_tokens": 2}).status_code == 200


def test_a_process_may_open_as_many_files_as_it_may_give_itself(gateway: Any) -> None:
    soft, hard = resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE)
    assert soft == hard > 64


@pytest.mark.case("C100")
@pytest.mark.parametrize("stream", [True, False])
def test_a_request_that_takes_longer_than_it_may_is_aborted_in_the_engine(gateway: Any, replica: Any, wait_for: Wait, stream: bool) -> None:  # noqa: FBT001
    begin = time.monotonic()
    response = httpx.post(gateway.url + PATH, json={**CHAT, "model": "m-alias", "stream": stream}, timeout=30)
    assert time.monotonic() - begin > 0.25
    assert response.status_code == (200 if stream else 504)
    assert json.loads(response.text.split("\n\n")[-2].removeprefix("data: ") if stream else response.text)["error"]["code"] == "request_timeout"
    wait_for(lambda: is_idle(gateway, replica), "the engine does not go on with it", timeout=2)


@pytest.mark.case("C099")
def test_what_keeps_proxies_from_buffering_a_stream_passes_the_gateway(gateway: Any) -> None:
    asked = {"Accept-Encoding": "gzip"}
    with httpx.stream("POST", gateway.url + PATH, json={**CHAT, "max_tokens": 5, "stream": True}, headers=asked, timeout=30) as response:
        pieces = [piece for piece in response.iter_raw() if b"data: " in piece]
    headers = response.headers
    assert (headers["content-type"], headers["cache-control"], headers["x-accel-buffering"]) == ("text/event-stream; charset=utf-8", "no-cache", "no")
    assert {"content-length", "content-encoding"} & set(headers) == set()
    assert len(pieces) >= 5, "each token has come by itself"


@pytest.mark.case("C015")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", [PATH, "/v1/completions"])
def test_an_unknown_model_is_a_404_through_the_gateway(gateway: Any, path: str, stream: bool) -> None:  # noqa: FBT001
    response = httpx.post(gateway.url + path, json={**CHAT, "prompt": "x", "model": "no-such-model", "stream": stream})
    assert (response.status_code, response.headers["content-type"]) == (404, "application/json")
    assert response.json()["error"] | {"message": ""} == {"message": "", "type": "invalid_request_error", "param": "model", "code": "model_not_found"}


@pytest.mark.parametrize("num_strangers", [100, pytest.param(10_000, marks=pytest.mark.stress)])
def test_random_models_and_paths_make_a_constant_number_of_series(gateway: Any, num_strangers: int) -> None:
    words = random.Random(11)

    def word() -> str:
        return "".join(words.choices(LETTERS, k=words.randint(2, 80)))

    with httpx.Client(base_url=gateway.url, trust_env=False) as client:

        def ask() -> set[int]:
            answers = client.post(PATH, json={"model": word()}), client.post(f"/x{word()}", json={"model": word()}), client.get(f"/x{word()}")
            return {answer.status_code for answer in answers}

        assert ask() == {404}
        before = gateway.samples()
        assert set().union(*(ask() for _ in range(num_strangers))) == {404}
    after = gateway.samples()
    assert set(after) == set(before)
    counter = ("stoker_gateway_http_requests_total", "other", PATH, "404")
    assert after[counter] - before[counter] == num_strangers


def stream_until(gateway: Any, kill: Callable[[], None]) -> None:
    """Each of some streams ends with an error."""
    clients = [send(gateway, {"stream": True}) for _ in range(8)]
    for client in clients:
        client.settimeout(30)
        while b"data: " not in client.recv(65536):
            continue
    kill()
    for client in clients:
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            piece = client.recv(65536)
            assert piece, "a proper end of the answer"
            data += piece
        client.close()
        assert data.count(b'{"error":') == 1


@pytest.mark.stress
def test_streams_whose_engine_is_killed_end_with_errors_and_its_successor_serves(gateway: Any, replica: Any, wait_for: Wait) -> None:
    stream_until(gateway, replica.engine.process.kill)
    wait_for(lambda: gateway.num_in_flight() == 0, "nothing is counted any more")
    replica.start_engine(Script(step_seconds=0.05), max_num_seqs=NUM_AT_ONCE)
    replica.wait_until_ready()
    wait_for(lambda: httpx.post(gateway.url + PATH, json={**CHAT, "max_tokens": 2}).status_code == 200, "the gateway knows")


@pytest.mark.stress
def test_streams_whose_api_is_killed_end_with_errors_and_another_replica_serves(start_api: Any, start_gateway: Any, static_model: Any, wait_for: Wait) -> None:
    first, second = start_api(Script(step_seconds=0.02)), start_api(Script(step_seconds=0.02))
    gateway = start_gateway(static_model("m", f"127.0.0.1:{first.port}", f"127.0.0.1:{second.port}", loadBalancing="RoundRobin"))
    wait_for(lambda: gateway.is_ready() and gateway.samples()["stoker_gateway_endpoints", "m", "ready"] == 2, "the gateway knows its replicas")

    def kill() -> None:
        for api in (first, second):
            os.kill(api.process.pid, signal.SIGKILL)

    stream_until(gateway, kill)
    wait_for(lambda: gateway.num_in_flight() == 0, "nothing is counted any more")
