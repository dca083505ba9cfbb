"""The numbers behind the metrics: plain counts, cheap to add to for every token; Prometheus objects are made when they are read."""

from stoker_gateway.api.metric_table import METRICS, MetricKind
from stoker_gateway.histogram import Histogram


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
