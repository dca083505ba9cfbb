"""One span per POST to the gateway; the span of the replica that answers is its child. Only imported where a collector is named."""

import time
from collections.abc import Sequence

from opentelemetry.trace import Span, StatusCode
from opentelemetry.util.types import AttributeValue

from stoker_gateway.http.trace_headers import TRACE_HEADERS, trace_headers
from stoker_gateway.http.traces import Traces
from stoker_gateway.router.routed_request import RoutedRequest
from stoker_gateway.router.upstream_answer import Header

_NAMES = frozenset(name.encode() for name in TRACE_HEADERS)


_BAD_REQUEST, _SERVER_ERROR = 400, 500


class Tracing:
    """Work is every POST."""

    def __init__(self, endpoint: str) -> None:
        self._traces = Traces(endpoint, "stoker-gateway")

    def begin(self, record: RoutedRequest, headers: Sequence[Header]) -> Sequence[Header]:
        """The request's headers as a replica gets them: with the gateway's span in place of the client's."""
        if record.method != "POST":
            return headers
        given = {name: _value(headers, name.encode()) for name in TRACE_HEADERS}
        record.span = self._traces.start(f"{record.method} {record.route}".rstrip(), trace_headers(given), time.time())
        own = ((name.encode(), value.encode()) for name, value in self._traces.headers_of(record.span).items())
        return (*(header for header in headers if header[0] not in _NAMES), *own)

    def observe(self, record: RoutedRequest) -> None:
        """Ends the request's span."""
        if record.span is not None:
            if record.span.is_recording():
                _describe(record.span, record)
            record.span.end()

    def close(self) -> None:
        self._traces.close()


def _value(headers: Sequence[Header], name: bytes) -> str:
    """Of several, which only tracestate may have, all."""
    return ",".join(value.decode("latin-1") for given, value in headers if given == name)


def _describe(span: Span, record: RoutedRequest) -> None:
    values: dict[str, AttributeValue | None] = {
        "http.request.method": record.method,
        "http.route": record.route or None,
        "http.response.status_code": record.status or None,
        "error.type": record.error or (str(record.status) if record.status >= _BAD_REQUEST else None),
        "gen_ai.request.model": record.model or None,
        "stoker.request.id": record.request_id,
        "stoker.endpoint": record.endpoint or None,
        "stoker.attempts": record.attempts or None,
        "stoker.time_to_first_byte": record.first_byte_seconds,
    }
    span.set_attributes({name: value for name, value in values.items() if value is not None})
    is_cut = record.status < _BAD_REQUEST and record.error not in ("", "client_disconnected")
    if record.status >= _SERVER_ERROR or is_cut:
        span.set_status(StatusCode.ERROR)
