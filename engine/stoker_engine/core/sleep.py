"""Sleep: a paused engine that has given memory back. It computes nothing until all of it is there again."""

import logging
from collections.abc import Callable, Collection
from concurrent.futures import Future
from enum import IntEnum

from stoker_engine.core.pause import Pause
from stoker_engine.executor.base import Executor
from stoker_engine.protocol import EnginePhase, PauseMode, SleepTag

logger = logging.getLogger(__name__)

MEMORY_TAGS = (SleepTag.WEIGHTS, SleepTag.KV_CACHE)
"""In the order in which they wake."""


class SleepLevel(IntEnum):
    """What a sleep gives back: nothing; the KV cache, and the device's copy of the weights; the weights altogether."""

    SCHEDULING = 0
    DEVICE_MEMORY = 1
    WEIGHTS = 2


class Sleep:
    """`forget_blocks` empties the prefix cache, running requests included; `report` is told SLEEPING and READY."""

    def __init__(self, pause: Pause, executor: Executor, *, forget_blocks: Callable[[], None], report: Callable[[EnginePhase], None]) -> None:
        self._pause = pause
        self._executor = executor
        self._forget_blocks = forget_blocks
        self._report = report
        self._asleep: frozenset[SleepTag] = frozenset()

    @property
    def is_sleeping(self) -> bool:
        return bool(self._asleep)

    @property
    def has_memory(self) -> bool:
        """Nothing that a forward needs has been given back."""
        return self._asleep <= {SleepTag.SCHEDULING}

    def sleep(self, level: SleepLevel, mode: PauseMode) -> "Future[None]":
        """Pauses by `mode`; gives memory back once there is no more work. Where memory is gone already the level stays as it is, with a warning."""
        return self.pause(mode, lambda: self._fall_asleep(level))

    def pause(self, mode: PauseMode, action: Callable[[], None]) -> "Future[None]":
        """Pause.pause; but without memory, requests that are kept stay kept, whatever the mode says of running ones."""
        if self.has_memory or mode is PauseMode.ABORT:
            return self._pause.pause(mode, action)
        logger.warning("pause: the engine is asleep already")
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def wake_up(self, tags: Collection[SleepTag] | None) -> None:
        """Takes back what `tags` name, by default all; scheduling resumes when nothing is missing. It may be tried again where loading the weights fails."""
        if not self._asleep and not self._pause.is_pending:
            logger.warning("wake_up: the engine is awake")
            return
        wanted = self._asleep if tags is None else frozenset(tags)
        for tag in MEMORY_TAGS:
            if tag in wanted & self._asleep:
                self._executor.wake_up([tag])
                self._asleep -= {tag}
            elif tag in wanted:
                logger.warning("wake_up: %s: awake already", tag)
        if not self.has_memory:
            return
        was_asleep, self._asleep = self.is_sleeping, frozenset()
        self._pause.resume()
        if was_asleep:
            self._report(EnginePhase.READY)

    def _fall_asleep(self, level: SleepLevel) -> None:
        if not self.has_memory or (self.is_sleeping and level is SleepLevel.SCHEDULING):
            logger.warning("sleep: the engine is asleep already")
            return
        gives_memory = level is not SleepLevel.SCHEDULING
        # Before any memory goes: where giving it back fails half-way nobody computes without it, and wake_up takes it again.
        self._asleep = frozenset({SleepTag.SCHEDULING, *MEMORY_TAGS} if gives_memory else {SleepTag.SCHEDULING})
        self._report(EnginePhase.SLEEPING)
        if gives_memory:
            self._forget_blocks()
            self._executor.sleep(level)
