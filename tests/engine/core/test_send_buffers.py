import random
from collections.abc import Iterator

import pytest
import zmq

from stoker_engine.core.output_socket import OutputSocket
from stoker_engine.core.send_buffers import MAX_IDLE_BUFFERS, MAX_UNTRACKED_MESSAGES, ZERO_COPY_BYTES, BufferPool
from stoker_engine.protocol import EngineCoreOutput, EngineCoreOutputs
from stoker_engine.serialization import MessageDecoder


class FakeTracker:
    def __init__(self) -> None:
        self.done = False


def send_tracked(pool: BufferPool, num_bytes: int = ZERO_COPY_BYTES) -> tuple[FakeTracker, bytearray]:
    tracker, buffer = FakeTracker(), pool.take()
    pool.sent_tracked(tracker, buffer, [], num_bytes)
    return tracker, buffer


@pytest.mark.property("P51")
def test_a_buffer_is_not_given_out_again_before_its_tracker_is_done() -> None:
    pool = BufferPool()
    tracker, buffer = send_tracked(pool)
    assert pool.take() is not buffer
    tracker.done = True
    assert pool.take() is buffer


def test_a_copied_messages_buffer_is_free_at_once() -> None:
    pool = BufferPool()
    buffer = pool.take()
    pool.sent_copied(buffer, 100)
    assert pool.take() is buffer


def test_buffers_come_back_oldest_first() -> None:
    pool = BufferPool()
    (first, first_buffer), (second, second_buffer) = send_tracked(pool), send_tracked(pool)
    second.done = True
    assert all(pool.take() is not buffer for buffer in (first_buffer, second_buffer))
    first.done = True
    assert {id(pool.take()), id(pool.take())} == {id(first_buffer), id(second_buffer)}
    assert (pool.num_messages, pool.num_bytes) == (0, 0)


def test_only_a_few_idle_buffers_are_kept() -> None:
    pool = BufferPool()
    sent = [send_tracked(pool) for _ in range(10)]
    for tracker, _ in sent:
        tracker.done = True
    used = {id(buffer) for _, buffer in sent}
    assert [id(buffer) in used for buffer in [pool.take() for _ in range(10)]] == [True] * MAX_IDLE_BUFFERS + [False] * (10 - MAX_IDLE_BUFFERS)


def test_a_large_message_is_tracked_and_so_is_every_so_manieth_small_one() -> None:
    pool = BufferPool()
    assert pool.wants_tracking(ZERO_COPY_BYTES) and not pool.wants_tracking(ZERO_COPY_BYTES - 1)
    for _ in range(MAX_UNTRACKED_MESSAGES):
        assert not pool.wants_tracking(10)
        pool.sent_copied(pool.take(), 10)
    assert pool.wants_tracking(10)


def test_what_was_copied_counts_until_a_later_tracked_message_is_done() -> None:
    pool = BufferPool()
    for _ in range(3):
        pool.sent_copied(pool.take(), 10)
    tracker, _ = send_tracked(pool, 1000)
    pool.sent_copied(pool.take(), 5)
    assert (pool.num_messages, pool.num_bytes) == (5, 1035)
    tracker.done = True
    pool.reclaim()
    assert (pool.num_messages, pool.num_bytes) == (1, 5)


@pytest.mark.property("P51")
@pytest.mark.parametrize("seed", range(20))
def test_counts_are_those_of_a_plain_list_whatever_is_sent_and_done(seed: int) -> None:
    random_ = random.Random(seed)
    pool, in_use = BufferPool(), {}
    sent: list[tuple[int, FakeTracker | None]] = []
    for _ in range(300):
        buffer = pool.take()
        assert all(tracker.done or used is not buffer for tracker, used in in_use.values())
        size = random_.choice([10, 100, ZERO_COPY_BYTES])
        if pool.wants_tracking(size):
            tracker = FakeTracker()
            pool.sent_tracked(tracker, buffer, [], size)
            in_use[len(sent)] = (tracker, buffer)
            sent.append((size, tracker))
        else:
            pool.sent_copied(buffer, size)
            sent.append((size, None))
        tracked = [tracker for _, tracker in sent if tracker is not None]
        for tracker in tracked[: random_.randrange(len(tracked) + 1)]:  # the transport sends in order
            tracker.done = True
        pool.reclaim()
        last_done = max((index for index, (_, tracker) in enumerate(sent) if tracker is not None and tracker.done), default=-1)
        left = [size for size, _ in sent[last_done + 1 :]]
        assert (pool.num_messages, pool.num_bytes) == (len(left), sum(left))


def message(number: int, num_tokens: int) -> EngineCoreOutputs:
    return EngineCoreOutputs(outputs=[EngineCoreOutput(f"request-{number}", [number % 1000] * num_tokens)])


@pytest.fixture
def output_pair(socket_dir: str) -> Iterator[tuple[zmq.Socket[bytes], OutputSocket]]:
    with zmq.Context() as context:
        address = f"ipc://{socket_dir}/output"
        pull = context.socket(zmq.PULL)
        pull.setsockopt(zmq.RCVHWM, 1)
        pull.setsockopt(zmq.RCVBUF, 4096)
        pull.bind(address)
        push = OutputSocket(context, address, b"client", b"identity")
        while not push.send(message(0, 1)):
            push.wait_for_connection()
        pull.recv_multipart()
        yield pull, push
        push.abandon()
        pull.close(0)


@pytest.mark.property("P51")
def test_a_slow_receiver_gets_every_message_as_it_was_when_it_was_sent(output_pair: tuple[zmq.Socket[bytes], OutputSocket]) -> None:
    # Were a buffer reused too early, a message still on its way would show a later one's tokens.
    pull, push = output_pair
    sizes = [1, 10_000, 3, 200_000, 50] * 40
    for number, size in enumerate(sizes):
        assert push.send(message(number, size))
        if number % 50 == 0:  # so far nothing was received: the kernel's buffers have long been full
            assert push.excess is None
    for number, size in enumerate(sizes):
        assert MessageDecoder(EngineCoreOutputs).decode(pull.recv_multipart()[2:]) == message(number, size)
