"""The W3C's headers that say which trace a request belongs to."""

from collections.abc import Mapping

TRACE_HEADERS = ("traceparent", "tracestate")
MAX_CHARACTERS = 512
"""No more than the specification asks anybody to take."""


def trace_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in TRACE_HEADERS if 0 < len(headers.get(name, "")) <= MAX_CHARACTERS}
