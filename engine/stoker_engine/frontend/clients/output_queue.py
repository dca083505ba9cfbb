"""OutputQueue: what came from engines, each engine's end behind its last outputs."""

import asyncio

from stoker_engine.errors import EngineDeadError
from stoker_engine.protocol import EngineCoreOutputs


class OutputQueue:
    """For one event loop. Until an end is taken, whoever reads knows of requests that have ended with it."""

    def __init__(self) -> None:
        self._items: asyncio.Queue[EngineCoreOutputs | EngineDeadError] = asyncio.Queue()
        self._num_ends = 0

    @property
    def holds_an_end(self) -> bool:
        """A request sent now would be taken for one of the engine that is gone."""
        return self._num_ends > 0

    def put(self, outputs: EngineCoreOutputs) -> None:
        self._items.put_nowait(outputs)

    def put_end(self, error: EngineDeadError) -> None:
        self._num_ends += 1
        self._items.put_nowait(error)

    async def get(self) -> EngineCoreOutputs:
        """Raises an engine's end."""
        item = await self._items.get()
        if isinstance(item, EngineDeadError):
            self._num_ends -= 1
            raise item
        return item
