"""A request's body: read whole, bounded in size and time, and what of it decides where it goes. But for a model's other name it is never written anew."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from stoker_gateway.http.disconnect import ClientDisconnectedError
from stoker_gateway.http.drain import Drain
from stoker_gateway.http.protocol import BODY_IS_HERE
from stoker_gateway.openai.errors import ApiError, body_too_large, body_too_slow, nested_too_deeply
from stoker_gateway.openai.nesting import MAX_NESTING
from stoker_gateway.router.body_memory import HeldBody
from stoker_gateway.router.exchange import Exchange

BODY_SECONDS = 60.0
MIN_BYTES_PER_SECOND = 4096
"""A body has BODY_SECONDS, and so much more for what has come of it: who sends a byte a minute is not waited for."""

MAX_PROMPT_BYTES = 64 * 1024
"""Of a prompt's beginning, for the choice of a replica."""

_NOTHING = msgspec.Raw()


class _Fields(msgspec.Struct):
    """The others are skipped."""

    model: str
    stream: msgspec.Raw = _NOTHING
    system: msgspec.Raw = _NOTHING
    messages: msgspec.Raw = _NOTHING
    prompt: msgspec.Raw = _NOTHING
    input: msgspec.Raw = _NOTHING


_decode = msgspec.json.Decoder(_Fields).decode


@dataclass(slots=True, frozen=True)
class RequestBody:
    """What of it the gateway goes by."""

    held: HeldBody
    model: str
    is_stream: bool


async def read_body(exchange: Exchange, body: HeldBody, max_bytes: int, drain: Drain) -> None:
    """Raises ApiError 413 as soon as it is known to be too long, 408 where it does not come, 503 where there is no room or the drain does not wait for it."""
    declared = exchange.header(b"content-length") or b""
    if declared.isdigit() and int(declared[:20]) > max_bytes:
        raise body_too_large(max_bytes)
    if BODY_IS_HERE in exchange.scope and not drain.is_draining:
        body.raw = await _read(exchange, body, max_bytes, _nothing)
        return
    try:
        async with asyncio.timeout(BODY_SECONDS) as timeout, drain.arrival():
            body.raw = await _read(exchange, body, max_bytes, partial(_wait_longer, timeout))
    except TimeoutError:
        raise body_too_slow(BODY_SECONDS) from None


async def _read(exchange: Exchange, body: HeldBody, max_bytes: int, after_each: Callable[[int], None]) -> bytes:
    """`after_each` of its pieces but the last is told how long it is."""
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await exchange.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > max_bytes:
            raise body_too_large(max_bytes)
        await body.grow(len(piece))
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        after_each(len(piece))


def _wait_longer(timeout: asyncio.Timeout, num_bytes: int) -> None:
    deadline = timeout.when()
    if deadline is not None:
        timeout.reschedule(deadline + num_bytes / MIN_BYTES_PER_SECOND)


def _nothing(_num_bytes: int) -> None:
    """Nobody waits for what is here."""


def parse_body(body: HeldBody) -> RequestBody:
    """Raises ApiError (400) for what is no JSON object with a model."""
    try:
        fields = _decode(body.raw)
    except msgspec.ValidationError as error:
        raise _explain(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(f"We could not parse the JSON body of your request: {error}.", code="invalid_json") from None
    except RecursionError:
        raise nested_too_deeply(MAX_NESTING) from None
    body.prompt = _prompt(fields)
    return RequestBody(body, fields.model, bytes(fields.stream) == b"true")


def _prompt(fields: _Fields) -> bytes:
    parts = (fields.system, fields.messages or fields.prompt or fields.input)
    return b"".join(bytes(memoryview(part)[:MAX_PROMPT_BYTES]) for part in parts)[:MAX_PROMPT_BYTES]


def _explain(text: str) -> ApiError:
    if "missing required field" in text:
        return ApiError("Missing required parameter: 'model'.", param="model", code="missing_required_parameter")
    if "$.model" in text:
        return ApiError("Invalid value for 'model': expected str.", param="model")
    return ApiError("The request body must be a JSON object.", code="invalid_json")
