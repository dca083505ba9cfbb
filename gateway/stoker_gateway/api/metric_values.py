"""The numbers behind the metrics: plain counts, cheap to add to for every token; Prometheus objects are made when they are read."""

from bisect import bisect_left
from collections.abc import Iterable

from stoker_gateway.api.metric_table import METRICS, MetricKind


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


class RunningTotal:
    """A total that an engine counts from its own start: it goes on across the engine's restarts, never down."""

    __slots__ = ("_last", "value")

    def __init__(self) -> None:
        self.value = 0
        self._last = 0

    def update(self, total: int) -> None:
        self.value += total - self._last if total >= self._last else total
        self._last = total


class MetricValues:
    """Gauges and counters by metric name, labeled counters by name and label value, histograms by name."""

    def __init__(self) -> None:
        self.numbers: dict[str, float] = {spec.name: 0 for spec in METRICS if spec.kind is not MetricKind.HISTOGRAM and spec.label is None}
        self.by_label: dict[str, dict[str, float]] = {spec.name: {} for spec in METRICS if spec.label is not None}
        self.histograms: dict[str, Histogram] = {spec.name: Histogram(spec.buckets) for spec in METRICS if spec.kind is MetricKind.HISTOGRAM}
