"""Request ids: the client's X-Request-Id, or one of our own, on every response and in every engine request's id."""

from starlette.requests import Request

HEADER = "X-Request-Id"
MESSAGES_HEADER = "request-id"
"""Where Anthropic's clients look for it."""


def request_id_of(request: Request, prefix: str) -> str:
    """`chatcmpl-…` or `cmpl-…`."""
    return f"{prefix}-{request.state.request_id}"
