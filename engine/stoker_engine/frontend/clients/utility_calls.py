"""UtilityCalls: the calls of an engine's methods that wait for their answers. Each gets exactly one, or an error."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stoker_engine.errors import EngineDeadError, EngineGenerateError
from stoker_engine.protocol import UtilityOutput


class UtilityCalls:
    """For one event loop. Answers may come in any order, and after the caller has left."""

    def __init__(self) -> None:
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._ids = itertools.count()

    @contextmanager
    def open(self) -> Iterator[tuple[int, asyncio.Future[Any]]]:
        """A call's id, never used again, and the future of its answer, wanted until the end of the block."""
        call_id = next(self._ids)
        future = self._futures[call_id] = asyncio.get_running_loop().create_future()
        try:
            yield call_id, future
        finally:
            del self._futures[call_id]

    def expect(self, output: UtilityOutput) -> bool:
        """Whether somebody waits for this answer."""
        return output.call_id in self._futures

    def resolve(self, output: UtilityOutput) -> None:
        future = self._futures.get(output.call_id)
        if future is None or future.done():
            return  # the caller no longer waits
        if output.failure_message is not None:
            future.set_exception(EngineGenerateError(output.failure_message))
        else:
            future.set_result(output.result)

    def fail_all(self, error: EngineDeadError) -> None:
        for future in self._futures.values():
            if not future.done():
                future.set_exception(error)
