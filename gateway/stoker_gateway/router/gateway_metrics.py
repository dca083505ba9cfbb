"""The gateway's metrics (`stoker_gateway_…`): counted as requests end; what goes up and down is read off the fleet when the page is asked for."""

from collections import defaultdict
from collections.abc import Iterator
from time import monotonic

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from stoker_gateway.histogram import REQUEST_LATENCY_BUCKETS, TTFT_BUCKETS, Histogram
from stoker_gateway.router.access_log import QUIET_ROUTES
from stoker_gateway.router.admission.admission import Admission
from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.fleet import Fleet, FleetChange
from stoker_gateway.router.routed_request import CLIENT_CLOSED_REQUEST, RoutedRequest

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

OTHER = "other"
"""Stands for every model and path that there is none of: strangers make no series."""

PREFIX = "stoker_gateway_"


class ModelCounts:
    """Of one model, or of all that named none."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, int], int] = defaultdict(int)
        """By path and status."""
        self.errors: dict[str, int] = defaultdict(int)
        self.num_retries = 0
        self.num_bytes = 0
        self.seconds = Histogram(REQUEST_LATENCY_BUCKETS)
        self.first_byte_seconds = Histogram(TTFT_BUCKETS)

    def observe(self, record: RoutedRequest) -> None:
        self.requests[record.route or OTHER, record.status or CLIENT_CLOSED_REQUEST] += 1
        self.num_retries += max(0, record.attempts - 1)
        self.num_bytes += record.num_bytes
        self.seconds.observe(record.seconds)
        if record.first_byte_seconds is not None:
            self.first_byte_seconds.observe(record.first_byte_seconds)
        if record.error:
            self.errors[record.error] += 1


class GatewayMetrics:
    """`observe` is an Observer; `render` writes the page."""

    def __init__(self, fleet: Fleet, admission: Admission) -> None:
        self._by_model: dict[str, ModelCounts] = defaultdict(ModelCounts)
        self._by_key: dict[str, tuple[int, int]] = {}
        self._fleet = fleet
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_CountCollector(self._by_model, self._by_key))
        self._registry.register(_FleetCollector(fleet, admission))
        ProcessCollector(registry=self._registry)

    def observe(self, record: RoutedRequest) -> None:
        if record.route in QUIET_ROUTES:
            return
        self._by_model[record.model or OTHER].observe(record)
        if record.key_name:
            requests, tokens = self._by_key.get(record.key_name, (0, 0))
            self._by_key[record.key_name] = requests + 1, tokens + record.num_tokens

    def on_fleet_change(self, change: FleetChange) -> None:
        """Models that are gone take their series with them: they come and go for years."""
        if change.models:
            names = {name for model in self._fleet.models for name in model.names}
            for name in [known for known in self._by_model if known not in names and known != OTHER]:
                del self._by_model[name]

    def render(self) -> bytes:
        return generate_latest(self._registry)


class _CountCollector(Collector):
    def __init__(self, by_model: dict[str, ModelCounts], by_key: dict[str, tuple[int, int]]) -> None:
        self._by_model = by_model
        self._by_key = by_key

    def collect(self) -> Iterator[Metric]:
        requests = _counter("http_requests", "HTTP requests that have ended, probes and scrapes apart.", "model_name", "path", "status")
        errors = _counter("request_errors", "Requests that were not answered as they should be, by why.", "model_name", "error")
        retries = _counter("retries", "Further replicas that requests were sent to.", "model_name")
        sent = _counter("response_bytes", "Bytes of the answers' bodies.", "model_name")
        seconds = _histogram("request_duration_seconds", "From a request's head to the end of its answer.")
        first = _histogram("time_to_first_byte_seconds", "From a request's head to the head of its answer.")
        for model, counts in self._by_model.items():
            for (path, status), count in counts.requests.items():
                requests.add_metric([model, path, str(status)], count)
            for error, count in counts.errors.items():
                errors.add_metric([model, error], count)
            retries.add_metric([model], counts.num_retries)
            sent.add_metric([model], counts.num_bytes)
            seconds.add_metric([model], counts.seconds.cumulative(None), counts.seconds.sum)
            first.add_metric([model], counts.first_byte_seconds.cumulative(None), counts.first_byte_seconds.sum)
        by_key = _counter("key_requests", "Requests of an API key.", "key")
        tokens = _counter("key_tokens", "Tokens of an API key's requests, where it has a budget of them.", "key")
        for key, (num_requests, num_tokens) in self._by_key.items():
            by_key.add_metric([key], num_requests)
            tokens.add_metric([key], num_tokens)
        yield from (requests, errors, retries, sent, seconds, first, by_key, tokens)


class _FleetCollector(Collector):
    def __init__(self, fleet: Fleet, admission: Admission) -> None:
        self._fleet = fleet
        self._admission = admission

    def collect(self) -> Iterator[Metric]:
        waiting = _gauge("num_requests_waiting", "Requests that wait in this gateway for a replica that can take them.", "model_name")
        in_flight = _gauge("num_requests_in_flight", "Requests that this gateway has sent to a replica and that have not ended.", "model_name", "endpoint")
        endpoints = _gauge("endpoints", "Replicas by what this gateway makes of them.", "model_name", "state")
        now = monotonic()
        for model in self._fleet.models:
            name = model.names[0]
            waiting.add_metric([name], self._admission.num_waiting(model))
            states = dict.fromkeys(("ready", "ejected", "not_ready"), 0)
            for endpoint in model.endpoints:
                states[_state(endpoint, now)] += 1
                in_flight.add_metric([name, str(endpoint.address)], endpoint.num_in_flight)
            for state, count in states.items():
                endpoints.add_metric([name, state], count)
        faults = _gauge("api_key_faults", "Entries of the file of API keys that cannot be used.")
        faults.add_metric([], len(self._admission.key_faults))
        synced = _gauge("synced", "1 once this gateway knows its models.")
        synced.add_metric([], int(self._fleet.is_synced))
        yield from (waiting, in_flight, endpoints, faults, synced)


def _state(endpoint: Endpoint, now: float) -> str:
    if not endpoint.is_ready:
        return "not_ready"
    return "ejected" if endpoint.health.is_ejected(now) else "ready"


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, labels=labels)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=labels)


def _histogram(name: str, text: str) -> HistogramMetricFamily:
    return HistogramMetricFamily(PREFIX + name, text, labels=["model_name"])
