import asyncio
from collections.abc import AsyncGenerator

import pytest

from stoker_gateway.api.merge import merge


async def numbers(count: int) -> AsyncGenerator[int]:
    for number in range(count):
        await asyncio.sleep(0)
        yield number


async def test_items_come_with_the_index_of_their_generator() -> None:
    merged = [entry async for entry in merge([numbers(3), numbers(0), numbers(2)])]
    assert sorted(merged) == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]
    assert [number for index, number in merged if index == 0] == [0, 1, 2]


async def test_the_first_failure_ends_the_others() -> None:
    ended = []

    async def endless() -> AsyncGenerator[int]:
        try:
            await asyncio.Event().wait()
            yield 0
        finally:
            ended.append("endless")

    async def failing() -> AsyncGenerator[int]:
        await asyncio.sleep(0)
        yield 1
        raise LookupError("two")

    with pytest.raises(LookupError, match="two"):
        async for _ in merge([endless(), failing()]):
            pass
    assert ended == ["endless"]


async def test_a_slow_reader_keeps_the_generators_waiting() -> None:
    num_made = [0, 0]

    async def count(index: int) -> AsyncGenerator[int]:
        while True:
            num_made[index] += 1
            yield num_made[index]

    merged = merge([count(0), count(1)])
    for num_read in range(1, 20):
        await anext(merged)
        for _ in range(20):
            await asyncio.sleep(0)
        assert sum(num_made) <= num_read + 2
    await merged.aclose()


async def test_others_run_between_the_starts_of_two_generators() -> None:
    started: list[int] = []
    seen: set[int] = set()

    async def start(index: int) -> AsyncGenerator[int]:
        started.append(index)
        yield index

    async def watch() -> None:
        while True:
            seen.add(len(started))
            await asyncio.sleep(0)

    watcher = asyncio.create_task(watch())
    assert len([entry async for entry in merge([start(index) for index in range(10)])]) == 10
    watcher.cancel()
    assert seen >= set(range(1, 11))


async def test_closing_ends_all() -> None:
    ended = []

    async def endless(name: str) -> AsyncGenerator[str]:
        try:
            while True:
                await asyncio.sleep(0)
                yield name
        finally:
            ended.append(name)

    merged = merge([endless("a"), endless("b")])
    await anext(merged)
    await merged.aclose()
    await asyncio.sleep(0)
    assert sorted(ended) == ["a", "b"]
