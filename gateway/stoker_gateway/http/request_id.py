"""Request ids: the client's X-Request-Id, or one of our own, on every response and in every engine request's id."""

import os
import re

from starlette.requests import Request

HEADER = "X-Request-Id"
MESSAGES_HEADER = "request-id"
"""Where Anthropic's clients look for it."""

_ALLOWED = re.compile(r"[\x21-\x7e]{1,128}")


def make_request_id(given: str) -> str:
    """The client's, or one of our own where that is not 1 to 128 visible ASCII characters."""
    return given if given and _ALLOWED.fullmatch(given) else os.urandom(16).hex()


def request_id_of(request: Request, prefix: str) -> str:
    """`chatcmpl-…` or `cmpl-…`."""
    return f"{prefix}-{request.scope['state']['request_id']}"
