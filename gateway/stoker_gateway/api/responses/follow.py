"""The events of a response that is made in the background, as a stream from any of them on."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response as HttpResponse

from stoker_gateway.api.event_stream import EventStream
from stoker_gateway.api.responses.store import StoredResponse
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.streaming import StreamEnd

RESPONSES_END = StreamEnd(b"", None)
"""The last event says how the response ended, response.failed where it failed: nothing comes after it."""


def followed(stored: StoredResponse, start: int) -> HttpResponse:
    """A client that goes away ends nothing. Raises ApiError (400) where the response has no events."""
    if stored.events is None:
        raise ApiError("Only a response that was created with background and stream can be streamed again.", param="stream")
    return EventStream(stored.response.id, _begun(stored.events.follow(start)), RESPONSES_END)


async def _begun(events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """The client learns at once that it is followed, whenever the next event comes."""
    yield b""
    async with aclosing(events):
        async for event in events:
            yield event
