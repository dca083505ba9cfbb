"""Reads a request's body, bounded, and checks that it says it is JSON."""

import asyncio
from collections.abc import Callable
from functools import partial

from starlette.requests import Request
from starlette.types import Receive

from stoker_gateway.http.disconnect import ClientDisconnectedError
from stoker_gateway.http.drain import Drain
from stoker_gateway.http.protocol import BODY_IS_HERE
from stoker_gateway.openai.errors import body_too_large, body_too_slow, unsupported_media_type

CHUNK_SECONDS = 60.0


async def read_json_body(request: Request, max_body_bytes: int, drain: Drain) -> bytes:
    """Raises ApiError 413 as soon as the body is known to be too long, 415 for a Content-Type that is not JSON; none at all is taken as JSON,
    408 where a part of it does not come.

    503 where the api drains before it is here.
    """
    _check_content_type(request.headers.get("content-type", ""))
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared[:20]) > max_body_bytes:
        raise body_too_large(max_body_bytes)
    if BODY_IS_HERE in request.scope:
        return await _read(request.receive, max_body_bytes, lambda: None)
    try:
        async with drain.arrival() as timeout:
            return await _read(request.receive, max_body_bytes, partial(_expect_more, drain, timeout))
    except TimeoutError:
        raise body_too_slow(CHUNK_SECONDS) from None


async def _read(receive: Receive, max_body_bytes: int, before_each: Callable[[], None]) -> bytes:
    pieces: list[bytes] = []
    size = 0
    is_over = False
    while not is_over:
        before_each()
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        is_over = not message.get("more_body", False)
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > max_body_bytes:
            raise body_too_large(max_body_bytes)
    return b"".join(pieces)


def _expect_more(drain: Drain, timeout: asyncio.Timeout) -> None:
    """A sender that has stopped is not waited for: each piece has CHUNK_SECONDS, unless the drain has set another end."""
    if not drain.is_draining:
        timeout.reschedule(asyncio.get_running_loop().time() + CHUNK_SECONDS)


def _check_content_type(content_type: str) -> None:
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type and media_type != "application/json" and not (media_type.startswith("application/") and media_type.endswith("+json")):
        raise unsupported_media_type(content_type)
