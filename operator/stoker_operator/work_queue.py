"""A queue of keys: each is in it once, worked on by one worker at a time, and comes back later with a growing delay when work on it failed."""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 60.0

KeyT = TypeVar("KeyT", bound=Hashable)


class WorkQueue(Generic[KeyT]):
    """For one event loop; times are its clock's."""

    def __init__(self) -> None:
        self._ready: OrderedDict[KeyT, float] = OrderedDict()
        self._active: dict[KeyT, float] = {}
        self._again: dict[KeyT, float] = {}
        self._timers: dict[KeyT, asyncio.TimerHandle] = {}
        self._failures: dict[KeyT, tuple[int, float]] = {}
        """How many in a row, and when the next try is due."""
        self._wakeup = asyncio.Event()

    @property
    def depth(self) -> int:
        """Keys that are due."""
        return len(self._ready) + len(self._again)

    @property
    def oldest_since(self) -> float | None:
        """When the key that has waited longest became due; None if none waits."""
        return min((*self._ready.values(), *self._again.values()), default=None)

    @property
    def active_since(self) -> float | None:
        """When work began on the key that has been worked on longest."""
        return min(self._active.values(), default=None)

    def add(self, key: KeyT) -> None:
        """Due now."""
        self._cancel_timer(key)
        now = asyncio.get_running_loop().time()
        if key in self._active:
            self._again.setdefault(key, now)
            return
        self._ready.setdefault(key, now)
        self._wakeup.set()

    def add_after(self, key: KeyT, seconds: float) -> None:
        """Due in `seconds`, or earlier if something else asks for that."""
        loop = asyncio.get_running_loop()
        if seconds <= 0:
            self.add(key)
            return
        if key in self._ready or key in self._again:
            return
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= loop.time() + seconds:
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_later(seconds, self._due, key)

    def retry(self, key: KeyT, *, at_least: float = 0.0) -> float:
        """Due after this key's next delay, doubled with each failure in a row; returns the delay in seconds. A try before it was due does not count."""
        now = asyncio.get_running_loop().time()
        failures, due = self._failures.get(key, (0, now))
        if now < due:
            delay = max(at_least, due - now)
        else:
            delay = min(LAST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(failures, 10))
            delay = max(at_least, delay * random.uniform(0.8, 1.2))
            failures += 1
        self._failures[key] = (failures, now + delay)
        self.add_after(key, delay)
        return delay

    def succeeded(self, key: KeyT) -> None:
        """The next failure starts the delays anew."""
        self._failures.pop(key, None)

    async def get(self) -> KeyT:
        """The key that has been due longest. `done` must follow."""
        while not self._ready:
            self._wakeup.clear()
            await self._wakeup.wait()
        key, _ = self._ready.popitem(last=False)
        self._active[key] = asyncio.get_running_loop().time()
        return key

    def done(self, key: KeyT) -> None:
        """The worker has finished; what came for the key meanwhile makes it due again."""
        del self._active[key]
        since = self._again.pop(key, None)
        if since is not None:
            self._ready[key] = since
            self._wakeup.set()

    def close(self) -> None:
        """Nothing becomes due by itself any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _due(self, key: KeyT) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _cancel_timer(self, key: KeyT) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
