"""What the gateway holds of requests' bodies: bounded in all, and let go once a replica has begun its answer."""

import asyncio
from typing import Any

import pytest

from stoker_gateway.openai.errors import ApiError
from stoker_gateway.router import body_memory
from stoker_gateway.router.body_memory import SMALL_BYTES, BodyMemory, HeldBody

MIB = 1 << 20


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def test_memory_that_has_no_room_for_one_body_is_refused() -> None:
    with pytest.raises(ValueError, match="less than one body of 4000 bytes"):
        BodyMemory(4000, 4096)


async def test_a_body_waits_for_another_to_go() -> None:
    memory = BodyMemory(3 * MIB, 4 * MIB)
    first, second = HeldBody(memory), HeldBody(memory)
    await first.grow(3 * MIB)
    waiting = asyncio.create_task(second.grow(MIB))
    await asyncio.sleep(0)
    assert not waiting.done()
    first.drop()
    await waiting
    assert memory.num_bytes == MIB
    second.drop()
    second.drop()
    assert memory.num_bytes == 0


async def test_long_bodies_leave_short_ones_room_and_wait_no_longer_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_memory, "WAIT_SECONDS", 0.01)
    memory = BodyMemory(3 * MIB, 4 * MIB)
    long, longer, short = HeldBody(memory), HeldBody(memory), HeldBody(memory)
    await long.grow(3 * MIB)
    with pytest.raises(ApiError) as refused:
        await longer.grow(SMALL_BYTES + 1)
    assert refused.value.status == 503 and refused.value.headers["Retry-After"]
    await short.grow(SMALL_BYTES)
    assert memory.num_bytes == 3 * MIB + SMALL_BYTES


async def test_who_leaves_while_it_waits_takes_nothing() -> None:
    memory = BodyMemory(3 * MIB, 4 * MIB)
    first = HeldBody(memory)
    await first.grow(3 * MIB)
    waiting = [asyncio.create_task(HeldBody(memory).grow(2 * MIB)) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    first.drop()
    waiting[1].cancel()  # its turn has come, and it does not know yet
    await asyncio.wait(waiting)
    assert memory.num_bytes == 0


async def test_a_body_is_let_go_when_its_answer_begins(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    done = asyncio.Event()

    async def answer(_request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(wire.stream() + wire.chunk(b"data: 1\n\n"))
        await done.wait()
        writer.write(b"0\r\n\r\n")

    gateway = await start_gateway(await start_replica(answer))
    memory = gateway.proxy._bodies
    async with gateway.client.stream("POST", "/v1/chat/completions", json={"model": "m", "stream": True, "prompt": "x" * 500_000}) as response:
        pieces = response.aiter_bytes()
        assert await anext(pieces) and gateway.num_in_flight == 1
        assert memory.num_bytes == 0
        done.set()
        assert [piece async for piece in pieces] == []


async def test_a_body_without_room_is_answered_with_503_and_the_next_one_is_served(
    start_replica: Any, start_gateway: Any, wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_memory, "WAIT_SECONDS", 0.01)
    release = asyncio.Event()

    async def answer(_request: Any, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.write(wire.plain(b"{}"))

    replica = await start_replica(answer)
    gateway = await start_gateway(replica, max_body_bytes=700_000, memory=MIB)
    first = asyncio.create_task(gateway.post(prompt="x" * 600_000))
    await until(lambda: replica.requests)
    refused = await gateway.post(prompt="x" * 600_000)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "body_memory_full") and refused.headers["retry-after"]
    release.set()
    assert (await gateway.post(prompt="x" * 600_000)).status_code == 200 and (await first).status_code == 200
    assert gateway.proxy._bodies.num_bytes == 0
