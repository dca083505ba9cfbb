"""OpenTelemetry's side of both programs: spans to a collector, in batches. Only imported where one is named."""

import os
import socket
import threading
from importlib.metadata import version
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

EXPORT_SECONDS = 3.0
"""A collector that does not answer for so long costs the spans that it was sent, and nobody anything else."""

CLOSE_SECONDS = 3.0


class Traces:
    """Spans of requests that are served. They go out from a thread. The environment's OTEL_… variables hold: the service's name, the sampler, headers for
    the collector."""

    def __init__(self, endpoint: str, service_name: str) -> None:
        self._provider = TracerProvider(resource=Resource.create(_resource_attributes(service_name)), shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=traces_url(endpoint), timeout=EXPORT_SECONDS)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("stoker_gateway")
        self._propagator = TraceContextTextMapPropagator()

    def start(self, name: str, trace_headers: dict[str, str], started: float) -> Span:
        """`started` is wall-clock seconds. The client's own span, where it sent one, is the parent."""
        context = self._propagator.extract(trace_headers)
        return self._tracer.start_span(name, context, SpanKind.SERVER, start_time=nanoseconds(started))

    def headers_of(self, span: Span) -> dict[str, str]:
        """What makes it the parent of the spans of whoever gets them."""
        headers: dict[str, str] = {}
        self._propagator.inject(headers, set_span_in_context(span))
        return headers

    def close(self) -> None:
        """Sends what is left; blocks for CLOSE_SECONDS at most. A collector that is away is not to hold up the end."""
        closing = threading.Thread(target=self._provider.shutdown, name="close-tracing", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


def nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def traces_url(endpoint: str) -> str:
    """An endpoint without a path gets the one that OTLP over HTTP has for traces."""
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + "/v1/traces"


def _resource_attributes(service_name: str) -> dict[str, AttributeValue]:
    """Who sends the spans: the program, its machine or pod, and what POD_NAME and POD_NAMESPACE say. What the environment's OTEL_… variables say wins."""
    pod = {"k8s.pod.name": os.environ.get("POD_NAME"), "k8s.namespace.name": os.environ.get("POD_NAMESPACE")}
    own = {
        "service.name": service_name,
        "service.instance.id": socket.gethostname(),
        "service.version": version("stoker"),
        **{name: value for name, value in pod.items() if value},
    }
    return {**own, **OTELResourceDetector().detect().attributes}
