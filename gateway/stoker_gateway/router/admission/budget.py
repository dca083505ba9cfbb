"""Budget: so much a minute."""

MINUTE_SECONDS = 60.0


class Budget:
    """Fills evenly, up to one minute's worth. What is known only afterwards may be more than there is: then it is empty until that has come in."""

    __slots__ = ("_left", "_per_minute", "_time")

    def __init__(self, per_minute: int, now: float) -> None:
        self._per_minute = per_minute
        self._left = float(per_minute)
        self._time = now

    def change(self, per_minute: int, now: float) -> None:
        """What has been used stays used."""
        self._fill(now)
        self._left = min(self._left + per_minute - self._per_minute, per_minute)
        self._per_minute = per_minute

    def wait_seconds(self, now: float) -> float:
        """Until there is one; 0 where there is."""
        self._fill(now)
        return max(0.0, (1 - self._left) * MINUTE_SECONDS / self._per_minute)

    def take(self, amount: int, now: float) -> None:
        self._fill(now)
        self._left -= amount

    def _fill(self, now: float) -> None:
        self._left = min(self._per_minute, self._left + (now - self._time) * self._per_minute / MINUTE_SECONDS)
        self._time = now
