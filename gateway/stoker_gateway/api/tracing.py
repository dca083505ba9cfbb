"""OpenTelemetry: one span per request, made when it has ended, with what the engine says of its times. Only imported where a collector is named."""

import os
import threading
from collections.abc import Iterator
from importlib.metadata import version
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from stoker_engine.stats import FinishedRequestStats
from stoker_gateway.api.request_record import RequestRecord
from stoker_gateway.api.span_attributes import latency_attributes, request_attributes, response_attributes, span_name

EXPORT_SECONDS = 3.0
"""A collector that does not answer for so long costs the spans that it was sent, and nobody anything else."""


CLOSE_SECONDS = 3.0


class Tracing:
    """Spans go out in batches, from a thread. The environment's OTEL_… variables hold: the service's name, the sampler, headers for the collector."""

    def __init__(self, endpoint: str) -> None:
        self._provider = TracerProvider(resource=Resource.create(_resource_attributes()), shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=traces_url(endpoint), timeout=EXPORT_SECONDS)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("stoker_gateway")
        self._propagator = TraceContextTextMapPropagator()

    def observe(self, record: RequestRecord) -> None:
        """Work is every POST; the client's own span, where it sent one, is the parent."""
        if record.method != "POST":
            return
        context = self._propagator.extract(record.trace_headers)
        span = self._tracer.start_span(span_name(record), context, SpanKind.SERVER, start_time=_nanoseconds(record.started))
        if span.is_recording():
            _describe(span, record)
        span.end(_nanoseconds(record.started + record.seconds))

    def close(self) -> None:
        """Sends what is left; blocks for CLOSE_SECONDS at most. A collector that is away is not to hold up the end."""
        closing = threading.Thread(target=self._provider.shutdown, name="close-tracing", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


def _resource_attributes() -> dict[str, AttributeValue]:
    """Who sends the spans: the program, and the pod where it is in one. What the environment's variables say of these wins."""
    pod = {"k8s.pod.name": os.environ.get("POD_NAME"), "k8s.namespace.name": os.environ.get("POD_NAMESPACE")}
    own = {"service.name": "stoker-api", "service.version": version("stoker"), **{name: value for name, value in pod.items() if value}}
    return {**own, **OTELResourceDetector().detect().attributes}


def traces_url(endpoint: str) -> str:
    """An endpoint without a path gets the one that OTLP over HTTP has for traces."""
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + "/v1/traces"


def _describe(span: Span, record: RequestRecord) -> None:
    span.set_attributes({**request_attributes(record), **response_attributes(record), **latency_attributes(record)})
    if record.status >= 500 or "error" in record.finish_reasons:
        span.set_status(StatusCode.ERROR)
    for index, stats in enumerate(record.finished):
        for name, begin, seconds in _phases(stats):
            attributes: dict[str, AttributeValue] = {"seconds": seconds, "choice": index}
            span.add_event(name, attributes, _nanoseconds(begin))


def _phases(stats: FinishedRequestStats) -> Iterator[tuple[str, float, float]]:
    """Name, beginning on the wall clock and length of what a choice went through; the engine's clock is set by when its first token came here."""
    queue, prefill, decode = stats.queue_time or 0.0, stats.prefill_time or 0.0, stats.decode_time or 0.0
    if stats.time_to_first_token is None:
        if stats.queue_time is not None:
            yield "queue", stats.arrival, queue
        return
    first_token = stats.arrival + stats.time_to_first_token
    yield "queue", first_token - prefill - queue, queue
    yield "prefill", first_token - prefill, prefill
    yield "decode", first_token, decode


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
