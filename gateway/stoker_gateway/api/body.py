"""Reads a request's body, bounded, and checks that it says it is JSON."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from stoker_gateway.http.disconnect import ClientDisconnectedError
from stoker_gateway.http.drain import Drain
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
    chunks: list[bytes] = []
    size = 0
    try:
        async with drain.arrival():
            async for chunk in _chunks(request):
                size += len(chunk)
                if size > max_body_bytes:
                    raise body_too_large(max_body_bytes)
                chunks.append(chunk)
    except ClientDisconnect:
        raise ClientDisconnectedError from None
    return b"".join(chunks)


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    """Raises ApiError (408) where the next one does not come in CHUNK_SECONDS: a sender that has stopped is not waited for."""
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(CHUNK_SECONDS):
                chunk = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise body_too_slow(CHUNK_SECONDS) from None
        yield chunk


def _check_content_type(content_type: str) -> None:
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type and media_type != "application/json" and not (media_type.startswith("application/") and media_type.endswith("+json")):
        raise unsupported_media_type(content_type)
