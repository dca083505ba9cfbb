import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise

import pytest
import zmq

from stoker_engine.frontend.clients.message_reader import MESSAGES_AT_ONCE, MessageReader

ADDRESS = "inproc://messages"


@contextmanager
def sockets() -> Iterator[tuple[zmq.Socket[bytes], zmq.Socket[bytes]]]:
    with zmq.Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
        pull.bind(ADDRESS)
        push.connect(ADDRESS)
        yield push, pull


class Received(list[list[bytes]]):
    """Messages; one that says so is a fault."""

    def handle(self, frames: list[bytes]) -> None:
        if frames == [b"fault"]:
            raise ValueError("a fault")
        self.append(frames)

    async def wait_for(self, number: int) -> None:
        async with asyncio.timeout(10):
            while len(self) < number:
                await asyncio.sleep(0.001)


@asynccontextmanager
async def reading(pull: zmq.Socket[bytes], received: Received) -> AsyncIterator[MessageReader]:
    reader = MessageReader(pull, received.handle)
    try:
        yield reader
    finally:
        reader.close()


async def test_messages_that_came_before_and_after_the_reader_are_handled_in_order() -> None:
    received = Received()
    with sockets() as (push, pull):
        push.send(b"0")
        async with reading(pull, received):
            for number in range(1, 20):
                push.send_multipart([b"%d" % number, b"frame"])
                await asyncio.sleep(0.001 * (number % 3))
            await received.wait_for(20)
    assert [frames[0] for frames in received] == [b"%d" % number for number in range(20)]


async def test_a_flood_leaves_others_their_turn_and_is_read_to_its_end() -> None:
    received = Received()
    turns: list[int] = []
    with sockets() as (push, pull):
        for number in range(10 * MESSAGES_AT_ONCE):
            push.send(b"%d" % number)
        async with reading(pull, received):
            while len(received) < 10 * MESSAGES_AT_ONCE:
                await asyncio.sleep(0)
                turns.append(len(received))
    # In one turn of the loop the descriptor and the reader itself may each ask for a reading.
    assert max(after - before for before, after in pairwise([0, *turns])) <= 2 * MESSAGES_AT_ONCE


async def test_reading_on_demand_says_whether_more_may_be_there() -> None:
    received = Received()
    with sockets() as (push, pull):
        async with reading(pull, received) as reader:
            for number in range(MESSAGES_AT_ONCE + 1):
                push.send(b"%d" % number)
            assert reader.read()
            assert len(received) == MESSAGES_AT_ONCE
            assert not reader.read()
            assert len(received) == MESSAGES_AT_ONCE + 1
            # What was read on demand leaves the descriptor as it was: the next message is noticed.
            push.send(b"next")
            await received.wait_for(MESSAGES_AT_ONCE + 2)


async def test_a_message_that_comes_while_another_is_sent_over_the_same_socket_is_noticed() -> None:
    received = Received()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
        router.bind(ADDRESS)
        dealer.connect(ADDRESS)
        async with reading(router, received) as reader:
            dealer.send(b"first")
            await received.wait_for(1)
            for number in range(2, 200):
                dealer.send(b"%d" % number)
                router.send_multipart([received[0][0], b"answer"])  # takes the descriptor's news of it
                reader.has_sent()
                await received.wait_for(number)


async def test_what_the_handler_raises_ends_the_reading_and_is_told() -> None:
    received = Received()
    with sockets() as (push, pull):
        async with reading(pull, received) as reader:
            for message in (b"0", b"fault", b"1"):
                push.send(message)
            with pytest.raises(ValueError, match="a fault"):
                async with asyncio.timeout(10):
                    await reader.wait_for_failure()
            await asyncio.sleep(0.01)
    assert received == [[b"0"]]


async def test_a_closed_reader_reads_no_more() -> None:
    received = Received()
    with sockets() as (push, pull):
        async with reading(pull, received):
            pass
        push.send(b"late")
        await asyncio.sleep(0.01)
    assert received == []
