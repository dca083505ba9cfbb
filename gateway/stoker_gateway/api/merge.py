"""Several async generators as one, in order of arrival."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


@dataclass(slots=True)
class _Arrival(Generic[ItemT]):
    index: int
    item: ItemT
    taken: asyncio.Event = field(default_factory=asyncio.Event)


async def merge(generators: Sequence[AsyncGenerator[ItemT]]) -> AsyncGenerator[tuple[int, ItemT]]:
    """Yields (index of the generator, item). The first failure ends all of them and is raised; so does closing.

    A generator is asked for its next item only when its last one has been taken, so that at most one of each waits for a slow reader. They start
    one by one, and the event loop serves others between two: to start one may mean to tokenize a prompt.
    """
    if len(generators) == 1:  # needs no task and no queue, which took 10 µs of 26 for each item
        async with aclosing(generators[0]) as only:
            async for item in only:
                yield 0, item
        return
    arrived: asyncio.Queue[_Arrival[ItemT] | asyncio.Task[None]] = asyncio.Queue()

    async def pump(index: int, generator: AsyncGenerator[ItemT]) -> None:
        async with aclosing(generator):
            async for item in generator:
                arrival = _Arrival(index, item)
                arrived.put_nowait(arrival)
                await arrival.taken.wait()

    tasks: list[asyncio.Task[None]] = []
    try:
        for index, generator in enumerate(generators):
            task = asyncio.create_task(pump(index, generator))
            task.add_done_callback(arrived.put_nowait)
            tasks.append(task)
            await asyncio.sleep(0)
        num_live = len(tasks)
        while num_live:
            entry = await arrived.get()
            if isinstance(entry, asyncio.Task):
                entry.result()
                num_live -= 1
            else:
                entry.taken.set()
                yield entry.index, entry.item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
