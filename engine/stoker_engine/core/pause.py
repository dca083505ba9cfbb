"""Pause and resume: who may be scheduled, and what waits until the engine has nothing left to do."""

from collections.abc import Callable
from concurrent.futures import Future

from stoker_engine.core.scheduler import Scheduler
from stoker_engine.core.scheduler_state import PauseState
from stoker_engine.errors import EngineGenerateError
from stoker_engine.protocol import PauseMode

_STATES = {PauseMode.ABORT: PauseState.PAUSED_NEW, PauseMode.WAIT: PauseState.PAUSED_NEW, PauseMode.KEEP: PauseState.PAUSED_ALL}


class IdleCallbacks:
    """What is to be done once there is no work. Each future is done exactly once: by `fire`, or by `cancel`."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Future[None], Callable[[], None]]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, action: Callable[[], None]) -> "Future[None]":
        future: Future[None] = Future()
        self._waiting.append((future, action))
        return future

    def fire(self) -> None:
        """Runs the actions in their order. One that fails fails its own future."""
        waiting, self._waiting = self._waiting, []
        for future, action in waiting:
            try:
                action()
            except Exception as error:  # noqa: BLE001 - the future raises it where it is waited for
                future.set_exception(error)
            else:
                future.set_result(None)

    def cancel(self, reason: str) -> None:
        """Nothing of it will be done."""
        waiting, self._waiting = self._waiting, []
        for future, _ in waiting:
            future.set_exception(EngineGenerateError(reason))


class Pause:
    """Requests that come while it lasts are queued, not refused. `has_work` says whether there is a reason for a step. Belongs to the core's thread."""

    def __init__(self, scheduler: Scheduler, has_work: Callable[[], bool]) -> None:
        self._scheduler = scheduler
        self._has_work = has_work
        self._callbacks = IdleCallbacks()

    @property
    def is_paused(self) -> bool:
        return self._scheduler.pause_state is not PauseState.UNPAUSED

    @property
    def is_pending(self) -> bool:
        """A pause has been asked for, and there is still work."""
        return bool(len(self._callbacks))

    def pause(self, mode: PauseMode, action: Callable[[], None]) -> "Future[None]":
        """Pauses; `action` is done when there is no more work, and then the future is. The mode of the last call holds for all that are pending."""
        if mode is PauseMode.ABORT:
            self._scheduler.abort_all_requests()
        self._scheduler.pause_state = _STATES[mode]
        future = self._callbacks.add(action)
        self.fire_if_idle()
        return future

    def resume(self) -> None:
        """Everybody may be scheduled again. A pause that is pending ends without its action."""
        self._scheduler.pause_state = PauseState.UNPAUSED
        self._callbacks.cancel("the engine was resumed before it had paused")

    def fire_if_idle(self) -> None:
        """Called before the core waits for input."""
        if self._callbacks and not self._has_work():
            self._callbacks.fire()
