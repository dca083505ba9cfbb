"""An OpenTelemetry collector that keeps what it gets."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Collector:
    """By OTLP over HTTP."""

    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    url: str = ""

    def spans(self) -> list[Any]:
        return [span for request in self.requests for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]

    @staticmethod
    def attributes(entries: Any) -> dict[str, Any]:
        found = {}
        for entry in entries:
            kind = entry.value.WhichOneof("value")
            value = getattr(entry.value, kind)
            found[entry.key] = [item.string_value for item in value.values] if kind == "array_value" else value
        return found


@contextmanager
def run_collector() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.requests.append(ExportTraceServiceRequest.FromString(body))
            collector.paths.add(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        collector.url = f"http://127.0.0.1:{server.server_port}"
        yield collector
        server.shutdown()
