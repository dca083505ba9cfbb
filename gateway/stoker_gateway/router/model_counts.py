"""ModelCounts: what is counted of one model's requests as they end."""

from collections import defaultdict

from stoker_gateway.histogram import REQUEST_LATENCY_BUCKETS, TTFT_BUCKETS, Histogram
from stoker_gateway.router.routed_request import CLIENT_CLOSED_REQUEST, RoutedRequest

OTHER = "other"
"""Stands for every model and path that there is none of: strangers make no series."""


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
