import queue
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import zmq

from stoker_engine.core import output_socket, output_thread
from stoker_engine.core.output_thread import OutputThread
from stoker_engine.protocol import ENGINE_CORE_DEAD, EngineCoreOutput, EngineCoreOutputs, LogprobsArrays
from stoker_engine.serialization import MessageDecoder

RECEIVE_MS = 10_000


@pytest.fixture
def address(socket_dir: str) -> str:
    return f"ipc://{socket_dir}/output"


@pytest.fixture
def bind(address: str) -> Iterator[Callable[[], zmq.Socket[bytes]]]:
    """Binds an api's end that takes one message and leaves the rest to the kernel's buffers."""
    sockets: list[zmq.Socket[bytes]] = []
    with zmq.Context() as context:

        def make() -> zmq.Socket[bytes]:
            pull: zmq.Socket[bytes] = context.socket(zmq.PULL)
            pull.setsockopt(zmq.RCVHWM, 1)
            pull.setsockopt(zmq.RCVTIMEO, RECEIVE_MS)
            pull.setsockopt(zmq.LINGER, 0)
            pull.bind(address)
            sockets.append(pull)
            return pull

        yield make
        for pull in sockets:
            pull.close(0)


class GivenUp:
    """What the link does when a client is given up."""

    def __init__(self) -> None:
        self.thread: OutputThread | None = None
        self.reasons: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __call__(self, client: bytes, reason: str) -> None:
        assert self.thread is not None and client == b"A"
        self.thread.set_client(None)
        self.reasons.put(reason)


@pytest.fixture
def given_up() -> GivenUp:
    return GivenUp()


@pytest.fixture
def output(address: str, given_up: GivenUp) -> Iterator[OutputThread]:
    thread = given_up.thread = OutputThread(address, b"identity", given_up)
    thread.start()
    yield thread
    thread.close()


def message(number: int, num_tokens: int = 1) -> EngineCoreOutputs:
    return EngineCoreOutputs(outputs=[EngineCoreOutput(str(number), [number] * num_tokens)])


def receive(pull: zmq.Socket[bytes]) -> tuple[bytes, EngineCoreOutputs]:
    client, identity, *frames = pull.recv_multipart()
    assert identity == b"identity"
    return client, MessageDecoder(EngineCoreOutputs).decode(frames)


@pytest.mark.property("P51")
def test_messages_arrive_in_the_order_they_were_queued(output: OutputThread, bind: Callable[[], zmq.Socket[bytes]]) -> None:
    pull = bind()
    output.set_client(b"A")
    sizes = [1, 20_000, 2, 5_000, 1] * 30
    for number, size in enumerate(sizes):
        output.send(b"A", message(number, size))
    for number, size in enumerate(sizes):
        assert receive(pull) == (b"A", message(number, size))


def test_arrays_travel_in_frames_of_their_own(output: OutputThread, bind: Callable[[], zmq.Socket[bytes]]) -> None:
    pull = bind()
    output.set_client(b"A")
    arrays = LogprobsArrays(np.arange(4000, dtype=np.int32).reshape(-1, 4), np.zeros((1000, 4), np.float32), np.ones(1000, np.int32))
    for _ in range(3):
        output.send(b"A", EngineCoreOutputs(outputs=[EngineCoreOutput("a", [1], new_prompt_logprobs=arrays)]))
    for _ in range(3):
        frames = pull.recv_multipart()
        assert [len(frame) for frame in frames[3:]] == [16000, 16000, 4000]
        assert MessageDecoder(EngineCoreOutputs).decode(frames[2:]).outputs[0].new_prompt_logprobs == arrays


def test_what_is_queued_for_a_client_that_has_gone_is_dropped(output: OutputThread, bind: Callable[[], zmq.Socket[bytes]]) -> None:
    pull = bind()
    output.set_client(b"A")
    output.send(b"A", message(1))
    assert receive(pull) == (b"A", message(1))
    output.set_client(b"B")
    output.send(b"A", message(2))
    output.send(b"B", message(3))
    assert receive(pull) == (b"B", message(3))


def test_a_client_that_takes_too_many_bytes_not_is_given_up(output: OutputThread, bind: Callable[[], zmq.Socket[bytes]], given_up: GivenUp) -> None:
    bind()
    output.set_client(b"A")
    for number in range(2 * output_socket.MAX_BACKLOG_BYTES // 1_000_000):
        output.send(b"A", message(number, 1_000_000))
    assert "has not taken" in given_up.reasons.get(timeout=10)
    assert given_up.reasons.empty()


def test_a_client_that_takes_too_many_messages_not_is_given_up_and_may_come_back(
    output: OutputThread, bind: Callable[[], zmq.Socket[bytes]], given_up: GivenUp
) -> None:
    pull = bind()
    output.set_client(b"A")
    for number in range(2 * output_socket.MAX_BACKLOG_MESSAGES):
        output.send(b"A", message(number, 100))
    assert "messages" in given_up.reasons.get(timeout=10)
    output.set_client(b"A")
    output.send(b"A", message(7, 7))
    while receive(pull) != (b"A", message(7, 7)):
        pass


def test_a_client_whose_socket_cannot_be_reached_is_given_up(output: OutputThread, given_up: GivenUp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_thread, "CONNECT_SECONDS", 0.2)
    output.set_client(b"A")
    output.send(b"A", message(1))
    assert "cannot be reached" in given_up.reasons.get(timeout=10)


@pytest.mark.fault("F5")
def test_closing_waits_until_a_slow_client_has_taken_everything(output: OutputThread, bind: Callable[[], zmq.Socket[bytes]]) -> None:
    pull = bind()
    output.set_client(b"A")
    for number in range(200):
        output.send(b"A", message(number % 7, 50_000))
    output.send_dead(b"A")
    closing = threading.Thread(target=output.close)
    closing.start()
    for number in range(200):
        assert receive(pull) == (b"A", message(number % 7, 50_000))
    assert pull.recv_multipart() == [b"A", b"identity", ENGINE_CORE_DEAD]
    closing.join(timeout=2)
    assert not closing.is_alive()
