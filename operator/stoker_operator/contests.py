"""Somebody who undoes our writes again and again, such as a second operator with other flags, must not draw us into a storm of writes."""

from collections.abc import Hashable

FREE_REPAIRS = 5
WINDOW_SECONDS = 60.0
"""So many repairs of one object within this time are made at once."""

HOLD_SECONDS = 15.0
"""From then on they are this far apart, until nothing had to be repaired for WINDOW_SECONDS."""


class Contests:
    """A repair writes what was written to the same object before. Times are seconds of any steady clock."""

    def __init__(self) -> None:
        self._written: dict[Hashable, str] = {}
        self._repairs: dict[Hashable, tuple[int, float]] = {}

    def hold(self, place: Hashable, desired: str, now: float) -> float:
        """Seconds to wait before `desired`, a hash, may be written; 0 counts it as written."""
        count, last = self._repairs.get(place, (0, 0.0))
        if self._written.get(place) != desired or now - last > WINDOW_SECONDS:
            count = 0
        if count >= FREE_REPAIRS and now - last < HOLD_SECONDS:
            return last + HOLD_SECONDS - now
        self._written[place] = desired
        self._repairs[place] = (count + 1, now)
        return 0.0

    def forget(self, place: Hashable) -> None:
        """An object that is made anew."""
        self._written.pop(place, None)
        self._repairs.pop(place, None)
