"""One span per request of the api, made when it has ended, with what the engine says of its times. Only imported where a collector is named."""

from collections.abc import Iterator

from opentelemetry.trace import Span, StatusCode
from opentelemetry.util.types import AttributeValue

from stoker_engine.stats import FinishedRequestStats
from stoker_gateway.api.request_record import RequestRecord
from stoker_gateway.api.span_attributes import latency_attributes, request_attributes, response_attributes, span_name
from stoker_gateway.http.traces import Traces, nanoseconds


class Tracing:
    """Work is every POST."""

    def __init__(self, endpoint: str) -> None:
        self._traces = Traces(endpoint, "stoker-api")

    def observe(self, record: RequestRecord) -> None:
        if record.method != "POST":
            return
        span = self._traces.start(span_name(record), record.trace_headers, record.started)
        if span.is_recording():
            _describe(span, record)
        span.end(nanoseconds(record.started + record.seconds))

    def close(self) -> None:
        self._traces.close()


def _describe(span: Span, record: RequestRecord) -> None:
    span.set_attributes({**request_attributes(record), **response_attributes(record), **latency_attributes(record)})
    if record.status >= 500 or "error" in record.finish_reasons:
        span.set_status(StatusCode.ERROR)
    for index, stats in enumerate(record.finished):
        for name, begin, seconds in _phases(stats):
            attributes: dict[str, AttributeValue] = {"seconds": seconds, "choice": index}
            span.add_event(name, attributes, nanoseconds(begin))


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
