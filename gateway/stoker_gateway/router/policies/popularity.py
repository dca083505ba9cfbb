"""Popularity: how much of the latest traffic is about one beginning."""

from collections import Counter, deque

WINDOW = 32
"""Requests."""

FEW = 16
"""Fewer say nothing yet: until there are so many, others are thought to have been asked about something else."""


class Popularity:
    """Of the latest requests, those of each block that they matched last."""

    def __init__(self) -> None:
        self._latest: deque[int | None] = deque()
        self._counts: Counter[int | None] = Counter()

    def share(self, block: int | None) -> float:
        """0 to 1, with this request, which counts from now on. None stands for what matched nothing."""
        self._latest.append(block)
        self._counts[block] += 1
        if len(self._latest) > WINDOW:
            oldest = self._latest.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        return self._counts[block] / max(FEW, len(self._latest))
