"""The page of `/metrics`, written of what was counted at one time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from stoker_gateway.router.model_counts import ModelCounts

PREFIX = "stoker_gateway_"


@dataclass(slots=True, frozen=True)
class ModelNow:
    """What goes up and down of a model: requests in the queue, replicas by state, and requests in flight by address."""

    name: str
    num_waiting: int
    states: Mapping[str, int]
    in_flight: Sequence[tuple[str, int]]


@dataclass(slots=True, frozen=True)
class Snapshot:
    """Nobody changes it any more. `keys`: requests and tokens by the name of an API key."""

    counts: Sequence[tuple[str, ModelCounts]]
    keys: Mapping[str, tuple[int, int]]
    models: Sequence[ModelNow]
    num_key_faults: int
    is_synced: bool


def write_page(snapshot: Snapshot) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_CountCollector(snapshot))
    registry.register(_FleetCollector(snapshot))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _CountCollector(Collector):
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        requests = _counter("http_requests", "HTTP requests that have ended, probes and scrapes apart.", "model_name", "path", "status")
        errors = _counter("request_errors", "Requests that were not answered as they should be, by why.", "model_name", "error")
        retries = _counter("retries", "Further replicas that requests were sent to.", "model_name")
        sent = _counter("response_bytes", "Bytes of the answers' bodies.", "model_name")
        seconds = _histogram("request_duration_seconds", "From a request's head to the end of its answer.")
        first = _histogram("time_to_first_byte_seconds", "From a request's head to the head of its answer.")
        for model, counts in self._snapshot.counts:
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
        for key, (num_requests, num_tokens) in self._snapshot.keys.items():
            by_key.add_metric([key], num_requests)
            tokens.add_metric([key], num_tokens)
        yield from (requests, errors, retries, sent, seconds, first, by_key, tokens)


class _FleetCollector(Collector):
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        waiting = _gauge("num_requests_waiting", "Requests that wait in this gateway for a replica that can take them.", "model_name")
        in_flight = _gauge("num_requests_in_flight", "Requests that this gateway has sent to a replica and that have not ended.", "model_name", "endpoint")
        endpoints = _gauge("endpoints", "Replicas by what this gateway makes of them.", "model_name", "state")
        for model in self._snapshot.models:
            waiting.add_metric([model.name], model.num_waiting)
            for state, count in model.states.items():
                endpoints.add_metric([model.name, state], count)
            for address, count in model.in_flight:
                in_flight.add_metric([model.name, address], count)
        faults = _gauge("api_key_faults", "Entries of the file of API keys that cannot be used.")
        faults.add_metric([], self._snapshot.num_key_faults)
        synced = _gauge("synced", "1 once this gateway knows its models.")
        synced.add_metric([], int(self._snapshot.is_synced))
        yield from (waiting, in_flight, endpoints, faults, synced)


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, labels=labels)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=labels)


def _histogram(name: str, text: str) -> HistogramMetricFamily:
    return HistogramMetricFamily(PREFIX + name, text, labels=["model_name"])
