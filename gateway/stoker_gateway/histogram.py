"""Histogram: counts of values by bucket, cheap to add to, and the buckets of times that both programs tell."""

from bisect import bisect_left
from collections.abc import Iterable

TTFT_BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
REQUEST_LATENCY_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2),
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0),
    *(960.0, 1920.0, 7680.0),
)


class Histogram:
    """`counts[i]` are the values in bucket i, the last one those above every bound."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_each(self, values: Iterable[float]) -> None:
        for value in values:
            self.observe(value)

    def cumulative(self, max_bound: float | None) -> list[tuple[str, float]]:
        """Prometheus' buckets, up to `max_bound` where one is given."""
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            total += count
            if max_bound is None or bound <= max_bound:
                buckets.append((str(bound), total))
        buckets.append(("+Inf", total + self.counts[-1]))
        return buckets
