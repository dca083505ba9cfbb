"""The W3C's headers that say which trace a request belongs to."""

from starlette.datastructures import Headers

TRACE_HEADERS = ("traceparent", "tracestate")
MAX_CHARACTERS = 512
"""No more than the specification asks anybody to take."""


def trace_headers(headers: Headers) -> dict[str, str]:
    return {name: headers[name] for name in TRACE_HEADERS if 0 < len(headers.get(name, "")) <= MAX_CHARACTERS}
