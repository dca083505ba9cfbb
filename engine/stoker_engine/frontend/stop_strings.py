"""StopStrings: where the first stop string of a text is, and how much of the text's end could still become one."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class StopMatch:
    """`stop` begins at `start` and ends before `end`."""

    stop: str
    start: int
    end: int


class StopStrings:
    """The stop strings of one request."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self.max_prefix = max(map(len, self._stops), default=1) - 1
        """Length of the longest proper prefix of a stop string: as much of a text must be kept to find one that begins there."""

    def find(self, text: str, num_searched: int) -> StopMatch | None:
        """The match that begins earliest, the longest of several, among those that end after the first `num_searched` characters."""
        best: StopMatch | None = None
        for stop in self._stops:
            start = text.find(stop, max(0, num_searched - len(stop) + 1))
            if start >= 0 and (best is None or (start, -len(stop)) < (best.start, -len(best.stop))):
                best = StopMatch(stop, start, start + len(stop))
        return best

    def begun_length(self, text: str) -> int:
        """The length of the longest end of `text` that is a proper prefix of a stop string."""
        return max([self._begun_by(stop, text) for stop in self._stops]) if self._stops else 0

    @staticmethod
    def _begun_by(stop: str, text: str) -> int:
        start = text.find(stop[0], max(0, len(text) - len(stop) + 1))
        while start >= 0:
            if stop.startswith(text[start:]):
                return len(text) - start
            start = text.find(stop[0], start + 1)
        return 0
