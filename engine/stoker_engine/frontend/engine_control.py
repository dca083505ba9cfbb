"""EngineControl: pause, sleep, wake, reset and profile an engine, over any client's `call_utility`."""

from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

from stoker_engine.protocol import PauseMode, SleepTag

NothingT = TypeVar("NothingT")
TruthT = TypeVar("TruthT")


class EngineControl(Generic[NothingT, TruthT]):
    """`EngineControl[Awaitable[None], Awaitable[bool]]` where `call` is a coroutine function, `EngineControl[None, bool]` where it blocks.

    Every method raises EngineNotReadyError where there is no engine, EngineDeadError where it goes away meanwhile, and EngineGenerateError with the
    engine's words where it refuses.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def pause_generation(self, mode: PauseMode = PauseMode.ABORT, *, clear_cache: bool = True) -> NothingT:
        """Returns when nothing is computed any more. Requests in flight are aborted, finished or kept, by `mode`; new ones wait for `resume_generation`."""
        return self._nothing("pause", mode, clear_cache)

    def resume_generation(self) -> NothingT:
        return self._nothing("resume")

    def is_paused(self) -> TruthT:
        return self._truth("is_paused")

    def sleep(self, level: int = 1, mode: PauseMode = PauseMode.ABORT) -> NothingT:
        """Pauses, then gives memory back: level 1 the KV cache and the device's weights, level 2 the weights on the host, too, level 0 nothing."""
        return self._nothing("sleep", level, mode)

    def wake_up(self, tags: Collection[SleepTag] | None = None) -> NothingT:
        """Takes back what `tags` name, by default all. Requests are served again once nothing is missing."""
        return self._nothing("wake_up", None if tags is None else list(tags))

    def is_sleeping(self) -> TruthT:
        return self._truth("is_sleeping")

    def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> TruthT:
        """False, and nothing changed, while blocks are in use; with `reset_running_requests` those that run give theirs back and go on later."""
        return self._truth("reset_prefix_cache", reset_running_requests)

    def start_profile(self) -> NothingT:
        """Records steps until `stop_profile`, which writes a trace into the engine's `--profile-dir`."""
        return self._nothing("start_profile")

    def stop_profile(self) -> NothingT:
        return self._nothing("stop_profile")

    def _nothing(self, method: str, *args: Any) -> NothingT:
        result: NothingT = self._call(method, *args)
        return result

    def _truth(self, method: str, *args: Any) -> TruthT:
        result: TruthT = self._call(method, *args)
        return result
