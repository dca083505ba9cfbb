"""Several async generators as one, in order of arrival."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

ItemT = TypeVar("ItemT")


async def merge(generators: Sequence[AsyncGenerator[ItemT]]) -> AsyncGenerator[tuple[int, ItemT]]:
    """Yields (index of the generator, item). The first failure ends all of them and is raised; so does closing."""
    arrived: asyncio.Queue[tuple[int, ItemT] | asyncio.Task[None]] = asyncio.Queue()

    async def pump(index: int, generator: AsyncGenerator[ItemT]) -> None:
        async for item in generator:
            arrived.put_nowait((index, item))

    tasks = [asyncio.create_task(pump(index, generator)) for index, generator in enumerate(generators)]
    for task in tasks:
        task.add_done_callback(arrived.put_nowait)
    num_live = len(tasks)
    try:
        while num_live:
            entry = await arrived.get()
            if isinstance(entry, asyncio.Task):
                entry.result()
                num_live -= 1
            else:
                yield entry
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
