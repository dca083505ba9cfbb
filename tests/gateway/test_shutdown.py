import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from stoker_engine.config import LifecycleConfig, ModelConfig
from stoker_engine.testing import FakeEngineCore, Script, fake_engine_config

Wait = Callable[[Callable[[], bool], str], None]
BODY = {"model": "m", "messages": [{"role": "user", "content": "x"}], "ignore_eos": True, "stream": True}


@contextmanager
def open_stream(api: Any, max_tokens: int) -> Iterator[Iterator[str]]:
    with httpx.stream("POST", f"{api.url}/v1/chat/completions", json={**BODY, "max_tokens": max_tokens}, timeout=30) as response:
        lines = response.iter_lines()
        next(lines)
        yield lines


def assert_cut_short(data: list[str]) -> None:
    """By the finish reason, and by an error that no client takes for the end of an answer."""
    assert '"finish_reason":"abort"' in data[-3]
    assert json.loads(data[-2].removeprefix("data: "))["error"]["code"] == "engine_not_ready"
    assert data[-1] == "data: [DONE]"


def test_an_idle_api_ends_at_once(start_api: Any) -> None:
    api = start_api(Script())
    assert api.stop() == 0
    assert api.termination["reason"] == "Drained" and api.termination["phase"] == "ready"


def test_an_api_without_an_engine_ends_on_sigterm(start_api: Any) -> None:
    api = start_api(None)
    assert api.stop() == 0
    assert api.termination["phase"] == "waiting_for_engine"


@pytest.mark.property("P70")
def test_a_stream_finishes_while_new_work_is_refused(start_api: Any, wait_for: Wait) -> None:
    api = start_api(Script(step_seconds=0.02))
    with open_stream(api, 50) as lines:
        api.process.send_signal(signal.SIGTERM)
        wait_for(lambda: api.status("/readyz") == 503, "/readyz is 503")
        assert api.status("/livez") == 200
        refused = api.post("/v1/chat/completions", {"messages": BODY["messages"]})
        assert (refused.status_code, refused.headers["retry-after"], refused.headers["connection"]) == (503, "1", "close")
        assert refused.json()["error"]["code"] == "draining"
        data = [line for line in lines if line]
    assert data[-1] == "data: [DONE]" and '"finish_reason":"length"' in data[-2]
    assert api.process.wait(timeout=30) == 0
    assert api.termination["reason"] == "Drained"
    assert (api.termination["inFlightAtStart"], api.termination["completed"]) == (1, 1)


def test_a_connection_that_is_open_when_the_drain_begins_gets_one_more_answer(start_api: Any, wait_for: Wait) -> None:
    api = start_api(Script(step_seconds=0.02))
    with open_stream(api, 250) as lines, httpx.Client(base_url=api.url, timeout=30) as kept, socket.create_connection(("127.0.0.1", api.port), 30) as fresh:
        assert kept.get("/livez").headers.get("connection") is None
        api.process.send_signal(signal.SIGTERM)
        wait_for(lambda: api.status("/readyz") == 503, "/readyz is 503")
        last = kept.post("/v1/chat/completions", json={**BODY, "max_tokens": 3, "stream": False})
        assert (last.status_code, last.headers["connection"], last.json()["usage"]["completion_tokens"]) == (200, "close", 3)
        assert kept.post("/v1/chat/completions", json=BODY).status_code == 503
        fresh.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b"".join(iter(lambda: fresh.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200") and b"connection: close" in answer.lower()
        data = [line for line in lines if line]
    assert data[-1] == "data: [DONE]" and '"finish_reason":"length"' in data[-2]
    assert api.process.wait(timeout=30) == 0
    assert (api.termination["reason"], api.termination["inFlightAtStart"], api.termination["completed"]) == ("Drained", 2, 2)


@pytest.mark.parametrize(("hold", "reason"), [("/pause?mode=keep", "length"), ("/sleep?level=1&mode=keep", "abort")], ids=["paused", "asleep"])
def test_a_drain_does_not_wait_for_requests_that_are_held(start_api: Any, hold: str, reason: str) -> None:
    api = start_api(Script(step_seconds=0.02), enable_engine_control=True)
    with open_stream(api, 50) as lines:
        assert api.client.post(hold).status_code == 200
        api.process.send_signal(signal.SIGTERM)
        data = [line for line in lines if line]
    assert data[-1] == "data: [DONE]" and any(f'"finish_reason":"{reason}"' in line for line in data[-3:])
    assert api.process.wait(timeout=30) == 0


@pytest.mark.property("P70")
@pytest.mark.parametrize("drain_timeout", ["0s", "200ms"])
def test_the_deadline_aborts_what_still_runs(start_api: Any, drain_timeout: str) -> None:
    api = start_api(Script(step_seconds=0.02), lifecycle=LifecycleConfig(drain_timeout=drain_timeout))
    with open_stream(api, 5000) as lines:
        api.process.send_signal(signal.SIGTERM)
        data = [line for line in lines if line]
    assert_cut_short(data)
    assert api.process.wait(timeout=30) == 0
    assert (api.termination["reason"], api.termination["aborted"]) == ("Aborted", 1)


@pytest.mark.fault("F8")
def test_a_second_signal_aborts(start_api: Any, wait_for: Wait) -> None:
    api = start_api(Script(step_seconds=0.02))
    with open_stream(api, 5000) as lines:
        api.process.send_signal(signal.SIGINT)
        wait_for(lambda: api.status("/readyz") == 503, "/readyz is 503")
        api.process.send_signal(signal.SIGINT)
        data = [line for line in lines if line]
    assert_cut_short(data)
    assert api.process.wait(timeout=30) == 0


def test_a_request_that_is_not_streamed_gets_its_partial_answer_at_the_deadline(start_api: Any, wait_for: Wait) -> None:
    api = start_api(Script(step_seconds=0.02), lifecycle=LifecycleConfig(drain_timeout="200ms"))
    with socket.create_connection(("127.0.0.1", api.port)) as connection:
        body = b'{"model":"m","prompt":"x","max_tokens":5000,"ignore_eos":true}'
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        wait_for(lambda: api.metric("stoker_num_requests_running") == 1, "the request runs")
        api.process.send_signal(signal.SIGTERM)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200") and b'"finish_reason":"abort"' in answer


def test_a_request_of_which_half_has_come_does_not_hold_up_the_end(start_api: Any, wait_for: Wait) -> None:
    api = start_api(Script())
    with socket.create_connection(("127.0.0.1", api.port)) as half:
        half.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"model"')
        assert api.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).status_code == 200
        assert api.stop() == 0
        half.settimeout(30)
        assert half.recv(1024).startswith(b"HTTP/1.1 503 ")
    assert api.termination["reason"] == "Drained"


def test_a_port_in_use_is_named(spawn_api: Any, socket_dir: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = spawn_api(socket_dir, port=port, stderr=subprocess.PIPE, text=True)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"127.0.0.1:{port}" in stderr and "Traceback" not in stderr


def test_a_socket_directory_that_is_missing_is_named(spawn_api: Any, socket_dir: str) -> None:
    missing = str(Path(socket_dir, "missing"))
    process = spawn_api(missing, stderr=subprocess.PIPE, text=True)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1 and missing in stderr and "Traceback" not in stderr


def test_a_second_api_on_a_socket_directory_is_told_who_holds_it(start_api: Any, spawn_api: Any) -> None:
    api = start_api(None)
    process = spawn_api(api.socket_dir, stderr=subprocess.PIPE, text=True)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1 and f"pid {api.process.pid}" in stderr
    assert api.status("/livez") == 200


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_is_no_socket_at_a_sockets_path_is_named_and_left_alone(spawn_api: Any, socket_dir: str, kind: str) -> None:
    path = Path(socket_dir, "input.sock")
    path.mkdir() if kind == "directory" else path.write_text("somebody's")
    process = spawn_api(socket_dir, stderr=subprocess.PIPE, text=True)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1 and f"{path} is not a socket" in stderr and "Traceback" not in stderr
    assert path.is_dir() if kind == "directory" else path.read_text() == "somebody's"


def test_an_api_whose_sockets_are_deleted_ends_and_deletes_nothing_in_their_place(start_api: Any) -> None:
    api = start_api(None)
    path = Path(api.socket_dir, "handshake.sock")
    path.unlink()
    path.write_text("somebody's")
    assert api.process.wait(timeout=30) == 1
    assert path.read_text() == "somebody's"
    assert "was deleted or replaced" in api.termination["lastError"]


def test_a_model_that_does_not_exist_is_a_bad_configuration(spawn_api: Any, socket_dir: str) -> None:
    process = spawn_api(socket_dir, model=ModelConfig(uri="file:///no/such.gguf"), stderr=subprocess.PIPE, text=True)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2 and "/no/such.gguf" in stderr and "Traceback" not in stderr


@pytest.mark.parametrize("delay", [0.0, 0.5])
def test_a_sigterm_while_the_api_starts_ends_it_at_once(spawn_api: Any, socket_dir: str, wait_for: Wait, delay: float) -> None:
    process = spawn_api(socket_dir)
    wait_for(lambda: Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"stoker-api"), "the process has its name")
    time.sleep(0.05 + delay)  # somewhere in its imports, the tokenizer's load or its first moments of service
    process.terminate()
    assert process.wait(timeout=30) == 0
    assert Path(socket_dir, "termination.json").exists()


FAULTY_API = """
from stoker_engine.frontend.output_processor import OutputProcessor
from stoker_gateway.api.__main__ import main

def process_some(self, outputs, timestamp, processed):
    raise ZeroDivisionError("a fault in the output handler")

OutputProcessor.process_some = process_some
main()
"""


def test_a_fault_in_the_engine_client_ends_the_process_and_is_told(spawn_api: Any, socket_dir: str, free_port: Callable[[], int], wait_for: Wait) -> None:
    port = free_port()
    process = spawn_api(socket_dir, port=port, code=FAULTY_API, stderr=subprocess.PIPE, text=True)
    with FakeEngineCore(fake_engine_config(socket_dir), Script()), httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:

        def is_ready() -> bool:
            with suppress(httpx.TransportError):
                return client.get("/readyz").status_code == 200
            return False

        wait_for(is_ready, "/readyz is 200")
        response = client.post("/v1/completions", json={"model": "m", "prompt": "x"})
        assert response.status_code == 503 and response.json()["error"]["code"] == "engine_dead"
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "stoker-api: the engine client failed: ZeroDivisionError: a fault in the output handler\n" in stderr
    message = json.loads(Path(socket_dir, "termination.json").read_text(encoding="utf-8"))
    assert message["reason"] == "Failed" and "ZeroDivisionError" in message["lastError"]


def test_the_end_of_the_supervisor_aborts_what_runs(start_api: Any) -> None:
    read_fd, write_fd = os.pipe()
    api = start_api(Script(step_seconds=0.02), supervisor_fd=read_fd)
    os.close(read_fd)
    with open_stream(api, 5000) as lines:
        os.close(write_fd)
        data = [line for line in lines if line]
    assert_cut_short(data)
    assert api.process.wait(timeout=30) == 0
