"""ModelCounts: what is counted of one model's requests as they end."""

from collections import defaultdict

from stoker_gateway.histogram import REQUEST_LATENCY_BUCKETS, TTFT_BUCKETS, Histogram
from stoker_gateway.http.disconnect import CLIENT_CLOSED_REQUEST
from stoker_gateway.router.routed_request import RoutedRequest

OTHER = "other"
"""Stands for every model and path that there is none of: strangers make no series."""

ERRORS = frozenset(
    (
        *("client_disconnected", "invalid_request_error", "server_error", "rate_limit_error", "invalid_json", "missing_required_parameter"),
        *("invalid_api_key", "origin_not_allowed", "rate_limit_exceeded", "model_not_found", "response_not_found", "unknown_url", "method_not_supported"),
        *("request_too_slow", "request_too_large", "headers_too_large", "unsupported_media_type", "invalid_http", "internal_error", "request_timeout"),
        *("queue_full", "queue_timeout", "draining", "no_replicas", "replicas_unreachable", "replica_failed", "replica_silent", "body_memory_full"),
        *("gateway_full", "gateway_not_ready", "gateway_stopping", "too_many_watchers", "context_length_exceeded"),
    )
)
"""That have a series of their own; a replica's other words have none."""


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
            self.errors[record.error if record.error in ERRORS else OTHER] += 1

    def copy(self) -> "ModelCounts":
        """As it is now."""
        copied = ModelCounts()
        copied.requests.update(self.requests)
        copied.errors.update(self.errors)
        copied.num_retries, copied.num_bytes = self.num_retries, self.num_bytes
        for mine, other in ((self.seconds, copied.seconds), (self.first_byte_seconds, copied.first_byte_seconds)):
            other.counts[:] = mine.counts
            other.sum = mine.sum
        return copied
