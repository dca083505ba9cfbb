"""CoreControl: what a client may ask of the engine besides requests: pause, sleep, prefix cache, statistics, profile."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from stoker_engine.core.pause import Pause
from stoker_engine.core.scheduler import Scheduler
from stoker_engine.core.sleep import Sleep, SleepLevel
from stoker_engine.errors import EngineGenerateError
from stoker_engine.executor.base import Executor
from stoker_engine.protocol import EnginePhase, PauseMode, SleepTag
from stoker_engine.stats import SchedulerStats


class CoreControl:
    """Belongs to the core's thread. `has_work` says whether the core has a reason for a step, `report` is told the phases SLEEPING and READY.

    A Future that a method returns is done when the engine has no more work: the core calls `fire_if_idle` before it waits for input.
    """

    def __init__(
        self, scheduler: Scheduler, executor: Executor, profile_dir: str | None, *, has_work: Callable[[], bool], report: Callable[[EnginePhase], None]
    ) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._profile_dir = profile_dir
        self._is_profiling = False
        self._pause = Pause(scheduler, has_work)
        self._sleep = Sleep(self._pause, executor, forget_blocks=self._forget_blocks, report=report)

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Those that may be called by name."""
        functions = (
            self.pause,
            self.resume,
            self.is_paused,
            self.sleep,
            self.wake_up,
            self.is_sleeping,
            self.reset_prefix_cache,
            self.get_scheduler_stats,
            self.start_profile,
            self.stop_profile,
        )
        return {function.__name__: function for function in functions}

    def pause(self, mode: PauseMode = PauseMode.ABORT, clear_cache: bool = True) -> "Future[None]":  # noqa: FBT001, FBT002 - an argument of the wire
        """Stops scheduling by `mode`; with `clear_cache` the prefix cache is emptied then, and kept requests compute their tokens again later."""
        return self._sleep.pause(mode, self._forget_blocks if clear_cache else _do_nothing)

    def resume(self) -> None:
        """Everybody is scheduled again. An engine that sleeps has to be woken instead."""
        if self._sleep.is_sleeping:
            raise EngineGenerateError("the engine sleeps; wake_up resumes it")
        self._pause.resume()

    def is_paused(self) -> bool:
        return self._pause.is_paused

    def sleep(self, level: SleepLevel = SleepLevel.DEVICE_MEMORY, mode: PauseMode = PauseMode.ABORT) -> "Future[None]":
        """Pauses by `mode`, then gives back, at level 1, the KV cache and the device's weights; at level 2 the weights altogether; at level 0 nothing."""
        return self._sleep.sleep(level, mode)

    def wake_up(self, tags: list[SleepTag] | None = None) -> None:
        """Takes back what `tags` name, by default all; scheduling resumes when nothing is missing."""
        self._sleep.wake_up(tags)

    def is_sleeping(self) -> bool:
        return self._sleep.is_sleeping

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:  # noqa: FBT001, FBT002 - an argument of the wire
        """Forgets every cached block. False, and nothing changed, while blocks are in use; or running requests give theirs back and go on later."""
        if reset_running_requests:
            self._scheduler.preempt_all_requests()
        return self._scheduler.reset_prefix_cache()

    def get_scheduler_stats(self) -> SchedulerStats:
        return self._scheduler.make_stats()

    def start_profile(self) -> None:
        """Records steps until `stop_profile`, into the directory of the engine's own setting."""
        if self._profile_dir is None:
            raise EngineGenerateError("profiling is off: the engine was started without --profile-dir")
        if self._is_profiling:
            raise EngineGenerateError("a profile is being recorded already")
        self._executor.start_profile(self._profile_dir)
        self._is_profiling = True

    def stop_profile(self) -> None:
        """Writes the profile."""
        if not self._is_profiling:
            raise EngineGenerateError("no profile is being recorded")
        self._is_profiling = False
        self._executor.stop_profile()

    def fire_if_idle(self) -> None:
        """Ends what waits for an engine without work."""
        self._pause.fire_if_idle()

    def client_gone(self) -> None:
        """Nobody else knows of its pause: it ends. A sleep goes on: the next client is told of it, and the memory may be somebody else's by now."""
        if not self._sleep.is_sleeping:
            self._pause.resume()

    def begin_drain(self) -> bool:
        """Lets requests that a pause holds finish, and READY is not said again. False where they cannot: the engine has no memory to run them."""
        if self._sleep.has_memory:
            self._pause.resume()
        return self._sleep.has_memory

    def _forget_blocks(self) -> None:
        self._scheduler.preempt_all_requests()
        self._scheduler.reset_prefix_cache()


def _do_nothing() -> None:
    pass
