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
        """Seconds to wait before `desired`, a hash, may be written."""
        count, last = self._recent(place, desired, now)
        return last + HOLD_SECONDS - now if count >= FREE_REPAIRS and now - last < HOLD_SECONDS else 0.0

    def written(self, place: Hashable, desired: str, now: float) -> None:
        """A write that failed changed nothing that somebody could undo."""
        count, _ = self._recent(place, desired, now)
        self._written[place] = desired
        self._repairs[place] = (count + 1, now)

    def _recent(self, place: Hashable, desired: str, now: float) -> tuple[int, float]:
        """How many repairs in a row there were, and when the last one."""
        count, last = self._repairs.get(place, (0, 0.0))
        return (0, last) if self._written.get(place) != desired or now - last > WINDOW_SECONDS else (count, last)

    def forget(self, place: Hashable) -> None:
        """An object that is made anew, or gone."""
        self._written.pop(place, None)
        self._repairs.pop(place, None)
