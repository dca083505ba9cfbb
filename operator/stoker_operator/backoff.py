"""When a process that ended is started again. Time is handed in, never read."""

MAX_DELAY = 60.0
STABLE_SECONDS = 60.0
"""A process that was READY for this long starts its series of delays anew."""


def restart_delay(num_failures: int) -> float:
    """Seconds before the restart after the n-th failure in a row: at once, then 1, 2, 4 … 60."""
    return 0.0 if num_failures <= 1 else min(MAX_DELAY, 2.0 ** min(num_failures - 2, 10))


class Backoff:
    """Counts the failures in a row of one process."""

    __slots__ = ("_ready_since", "num_failures")

    def __init__(self) -> None:
        self.num_failures = 0
        self._ready_since: float | None = None

    def observe(self, *, ready: bool, now: float) -> None:
        """What was seen of the process at `now`, in seconds of any steady clock."""
        if not ready:
            self._ready_since = None
            return
        if self._ready_since is None:
            self._ready_since = now
        if now - self._ready_since >= STABLE_SECONDS:
            self.num_failures = 0

    def delay_after_exit(self) -> float:
        """Counts one more failure; seconds to wait before the restart."""
        self.num_failures += 1
        self._ready_since = None
        return restart_delay(self.num_failures)
