"""Errors in Anthropic's shape: `{"type": "error", "error": {"type", "message"}, "request_id"}`."""

from typing import Literal

import msgspec

from stoker_gateway.openai.errors import ApiError

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class MessagesError(msgspec.Struct):
    type: str
    message: str


class MessagesErrorBody(msgspec.Struct):
    error: MessagesError
    request_id: str | None
    type: Literal["error"] = "error"


def messages_error(error: ApiError, request_id: str | None) -> bytes:
    """The type follows from the status."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return msgspec.json.encode(MessagesErrorBody(MessagesError(kind, error.message), request_id))
