"""Request ids: the client's X-Request-Id, or one of our own, on every response and in every engine request's id."""

import re
import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "X-Request-Id"
_ALLOWED = re.compile(r"[\x21-\x7e]{1,128}")


class RequestIdMiddleware:
    """Takes or makes the id and puts it on the response. An id that is not 1 to 128 visible ASCII characters is replaced."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request_id = given if _ALLOWED.fullmatch(given) else secrets.token_hex(16)
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)


def request_id_of(request: Request, prefix: str) -> str:
    """`chatcmpl-…` or `cmpl-…`."""
    return f"{prefix}-{request.state.request_id}"
