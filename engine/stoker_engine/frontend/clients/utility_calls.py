"""UtilityCalls: the calls of an engine's methods that wait for their answers. Each gets exactly one, or an error."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from stoker_engine.errors import EngineDeadError, EngineGenerateError
from stoker_engine.protocol import UtilityOutput


class UtilityCalls:
    """For one event loop. Answers may come in any order, and after the caller has left."""

    def __init__(self, wait_for_phase: Callable[[int], Coroutine[Any, Any, None]]) -> None:
        """wait_for_phase: returns when the engine's phase of this number, or a later one, is known here."""
        self._wait_for_phase = wait_for_phase
        self._answers = set[asyncio.Task[None]]()
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

    def take_answer(self, output: UtilityOutput) -> None:
        """The caller, if it still waits, gets it together with the engine's phase after the call."""
        if output.call_id in self._futures:
            answer = asyncio.create_task(self._resolve(output))
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)

    def fail_all(self, error: EngineDeadError) -> None:
        for answer in self._answers:
            answer.cancel()
        for future in self._futures.values():
            if not future.done():
                future.set_exception(error)

    async def _resolve(self, output: UtilityOutput) -> None:
        await self._wait_for_phase(output.phase_number)
        future = self._futures.get(output.call_id)
        if future is None or future.done():
            return  # the caller no longer waits
        if output.failure_message is not None:
            future.set_exception(EngineGenerateError(output.failure_message))
        else:
            future.set_result(output.result)
