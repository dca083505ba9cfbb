"""The error event of the Responses API, for a stream whose replica is gone."""

import re
from typing import Literal

import msgspec

from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.streaming import named_event

_SEQUENCE_NUMBER = re.compile(rb'"sequence_number": ?(\d{1,9})')


class ResponseErrorEvent(msgspec.Struct):
    code: str | None
    message: str
    param: str | None
    sequence_number: int
    type: Literal["error"] = "error"


def response_error_event(error: ApiError, before: bytes) -> bytes:
    """Its number follows the last one in `before`, the end of what was sent."""
    numbers = _SEQUENCE_NUMBER.findall(before)
    number = int(numbers[-1]) + 1 if numbers else 0
    return named_event("error", msgspec.json.encode(ResponseErrorEvent(error.code, error.message, error.param, number)))
