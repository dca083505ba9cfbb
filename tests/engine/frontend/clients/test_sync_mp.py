import asyncio
import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stoker_engine.errors import EngineDeadError, EngineNotReadyError, ParameterError, SocketDirectoryError
from stoker_engine.frontend.clients import sync_mp
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.frontend.clients.sync_mp import SyncMPClient
from stoker_engine.protocol import MAX_REQUEST_ID_LENGTH, EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.testing import FakeEngineCore, Script, fake_engine_config

FORK = """
import os, sys
from stoker_engine.errors import EngineDeadError
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.frontend.clients.sync_mp import SyncMPClient

client = SyncMPClient(ClientConfig(sys.argv[1]))
child = os.fork()
if not child:
    client.abort_requests(["a"])
    try:
        client.call_utility("is_paused")
    except EngineDeadError as error:
        sys.stdout.write(f"{error}\\n")
        sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
"""


def num_client_threads() -> int:
    return sum(thread.name == "engine-client" for thread in threading.enumerate())


def wait_until_ready(client: SyncMPClient) -> None:
    ready = threading.Event()
    while not client.is_ready:
        ready.wait(0.005)


def request(request_id: str = "a", max_tokens: int = 3) -> EngineCoreRequest:
    return EngineCoreRequest(request_id, [1, 2], SamplingParams(max_tokens=max_tokens), arrival_time=0.0)


def test_an_engine_may_die_and_another_come(socket_dir: str) -> None:
    client = SyncMPClient(ClientConfig(socket_dir))
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.001)) as engine:
        wait_until_ready(client)
        client.add_request(request(max_tokens=5000))
        assert client.get_output().outputs[0].request_id == "a"
        engine.process.kill()
        with pytest.raises(EngineDeadError, match="the engine is gone"):
            while True:
                client.get_output()
    with pytest.raises(EngineNotReadyError):
        client.add_request(request("b"))
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[5])):
        wait_until_ready(client)
        client.add_request(request("b", max_tokens=1))
        assert client.get_output().outputs[0].new_token_ids == [5]
        assert client.call_utility("is_paused") is False
    client.shutdown()


@pytest.mark.property("P50")
@pytest.mark.fault("B5")
def test_an_id_that_the_engine_would_not_read_is_refused_and_the_longest_one_served(socket_dir: str) -> None:
    client = SyncMPClient(ClientConfig(socket_dir))
    with FakeEngineCore(fake_engine_config(socket_dir), Script()):
        wait_until_ready(client)
        with pytest.raises(ParameterError, match="request_id must have at most 1024 characters, got 1025"):
            client.add_request(request("x" * (MAX_REQUEST_ID_LENGTH + 1)))
        client.add_request(request("x" * MAX_REQUEST_ID_LENGTH))
        assert client.get_output().outputs[0].request_id == "x" * MAX_REQUEST_ID_LENGTH
        client.shutdown()


def test_an_abort_ends_the_requests_beside_an_id_that_the_engine_would_not_read(socket_dir: str) -> None:
    client = SyncMPClient(ClientConfig(socket_dir))
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.01)):
        wait_until_ready(client)
        client.add_request(request(max_tokens=5000))
        client.abort_requests(["x" * (MAX_REQUEST_ID_LENGTH + 1), "a"])
        stats = client.call_utility("get_scheduler_stats")
        assert (stats["num_running"], stats["num_waiting"], stats["num_aborted"]) == (0, 0, 1)
        client.shutdown()


def test_a_client_that_is_shut_down_wakes_who_waits_and_refuses_calls(socket_dir: str) -> None:
    client = SyncMPClient(ClientConfig(socket_dir))
    errors: list[EngineDeadError] = []

    def wait() -> None:
        try:
            while True:
                client.get_output()
        except EngineDeadError as error:
            errors.append(error)

    waiting = [threading.Thread(target=wait) for _ in range(3)]
    for thread in waiting:
        thread.start()
    client.shutdown()
    client.shutdown()
    for thread in waiting:
        thread.join(5.0)
    wait()
    assert [str(error) for error in errors] == ["the client is shut down"] * 4
    client.abort_requests(["a"])
    for call in (lambda: client.add_request(request()), lambda: client.call_utility("is_paused"), lambda: client.ready_response):
        with pytest.raises(EngineNotReadyError, match="the client is shut down"):
            call()
    assert list(Path(socket_dir).glob("*.sock")) == []


def test_a_directory_that_another_client_holds_leaves_no_thread(socket_dir: str) -> None:
    holder = SyncMPClient(ClientConfig(socket_dir))
    before = num_client_threads()
    with pytest.raises(SocketDirectoryError, match="is held by another api"):
        SyncMPClient(ClientConfig(socket_dir))
    assert num_client_threads() == before
    holder.shutdown()


def test_a_dropped_client_lets_go_of_its_sockets_and_thread(socket_dir: str) -> None:
    client = SyncMPClient(ClientConfig(socket_dir))
    before = num_client_threads()
    del client
    gc.collect()
    assert num_client_threads() == before - 1
    SyncMPClient(ClientConfig(socket_dir)).shutdown()


def test_a_call_that_comes_while_another_thread_shuts_down_ends(socket_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = SyncMPClient(ClientConfig(socket_dir))
    closing, close = threading.Event(), asyncio.BaseEventLoop.close

    def late_call() -> None:
        closing.wait()
        with pytest.raises(EngineDeadError, match="the client is shut down"):
            client._loop.call(client._loop.client.abort_requests(["a"]))

    caller = threading.Thread(target=late_call)

    def close_late(loop: asyncio.BaseEventLoop) -> None:
        closing.set()
        caller.join(5.0)
        close(loop)

    monkeypatch.setattr(asyncio.BaseEventLoop, "close", close_late)
    caller.start()
    client.shutdown()
    assert not caller.is_alive()


def test_a_forked_process_is_told_that_the_client_is_not_its_own(socket_dir: str) -> None:
    done = subprocess.run([sys.executable, "-c", FORK, socket_dir], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "the client belongs to the process that this one was forked from\n"


def test_an_engine_that_says_nothing_gives_empty_outputs(socket_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_mp, "MAX_WAIT_SECONDS", 0.01)
    client = SyncMPClient(ClientConfig(socket_dir))
    assert client.get_output().outputs == []
    client.shutdown()
