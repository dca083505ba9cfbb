"""Server-sent events: how chunks, the end of a stream and an error after the first byte are written."""

from collections.abc import Callable
from dataclasses import dataclass

from stoker_gateway.openai.errors import ApiError

CONTENT_TYPE = "text/event-stream; charset=utf-8"
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""X-Accel-Buffering keeps nginx, and what behaves like it, from collecting chunks."""
DONE = b"data: [DONE]\n\n"


def event(data: bytes) -> bytes:
    """One event. `data` is JSON on one line, as msgspec writes it."""
    return b"data: " + data + b"\n\n"


def named_event(name: str, data: bytes) -> bytes:
    """One event with a name, which `data` has as its `type`, too."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def error_event(error: ApiError) -> bytes:
    """A failure after the first byte: the error object as an event. DONE follows it."""
    return event(error.body())


@dataclass(slots=True, frozen=True)
class StreamEnd:
    """What the last bytes of a stream are: `done` after its last event, `failed` where it fails on the way; None where its events say so themselves."""

    done: bytes
    failed: Callable[[ApiError], bytes] | None


COMPLETIONS_END = StreamEnd(DONE, lambda error: error_event(error) + DONE)
