"""HTTP requests by path and status: counted as they end, shown on both pages."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from stoker_gateway.api.api_keys import OPEN_PATHS
from stoker_gateway.api.request_record import RequestRecord
from stoker_gateway.histogram import REQUEST_LATENCY_BUCKETS, Histogram

METHODS = frozenset({"GET", "POST", "DELETE", "OPTIONS", "HEAD", "PUT", "PATCH"})
OTHER = "other"
"""Stands for every path that there is none of, and for every method that nobody knows: strangers make no series."""


@dataclass(slots=True, frozen=True, kw_only=True)
class HttpNaming:
    """What a page calls the path and the status, and how it shows the status."""

    prefix: str
    labels: dict[str, str]
    path_label: str
    has_status_classes: bool

    def status(self, status: int) -> str:
        return f"{status // 100}xx" if self.has_status_classes else str(status)


class HttpMetrics:
    """Probes, scrapes and /load are not counted: they would hide the rest. A client that left before any answer has the status 499."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, int], int] = defaultdict(int)
        self.seconds: dict[tuple[str, str], Histogram] = defaultdict(lambda: Histogram(REQUEST_LATENCY_BUCKETS))

    def observe(self, record: RequestRecord) -> None:
        if record.route in OPEN_PATHS:
            return
        method = record.method if record.method in METHODS else OTHER
        route = record.route or OTHER
        self.counts[method, route, record.status or 499] += 1
        self.seconds[method, route].observe(record.seconds)


class HttpCollector(Collector):
    """The counts under the names of one page."""

    def __init__(self, metrics: HttpMetrics, naming: HttpNaming) -> None:
        self._metrics = metrics
        self._naming = naming

    def collect(self) -> Iterator[Metric]:
        naming = self._naming
        own = [*naming.labels.values()]
        labels = [*naming.labels, "method", naming.path_label]
        requests = CounterMetricFamily(f"{naming.prefix}http_requests", "HTTP requests that have ended.", labels=[*labels, "status"])
        by_status: dict[tuple[str, str, str], int] = defaultdict(int)
        for (method, route, status), count in self._metrics.counts.items():
            by_status[method, route, naming.status(status)] += count
        for values, count in by_status.items():
            requests.add_metric([*own, *values], count)
        yield requests
        seconds = HistogramMetricFamily(f"{naming.prefix}http_request_duration_seconds", "From an HTTP request's head to the end of its answer.", labels=labels)
        for pair, histogram in self._metrics.seconds.items():
            seconds.add_metric([*own, *pair], histogram.cumulative(None), histogram.sum)
        yield seconds
