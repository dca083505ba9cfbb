"""Server-sent events: how chunks, the end of a stream and an error after the first byte are written."""

from stoker_gateway.openai.errors import ApiError

CONTENT_TYPE = "text/event-stream; charset=utf-8"
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""X-Accel-Buffering keeps nginx, and what behaves like it, from collecting chunks."""
DONE = b"data: [DONE]\n\n"


def event(data: bytes) -> bytes:
    """One event. `data` is JSON on one line, as msgspec writes it."""
    return b"data: " + data + b"\n\n"


def error_event(error: ApiError) -> bytes:
    """A failure after the first byte: the error object as an event. DONE follows it."""
    return event(error.body())
