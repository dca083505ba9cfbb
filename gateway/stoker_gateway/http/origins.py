"""OriginMiddleware: web pages of other origins may have no work done. Some POSTs of theirs a browser sends without asking first; it hides the answer alone."""

from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from stoker_gateway.http.json_response import error_response
from stoker_gateway.openai.errors import foreign_origin

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class OriginMiddleware:
    """403 for what changes something and comes from a page that is neither this host's nor of `allowed` origins. Programs send no Origin."""

    def __init__(self, app: ASGIApp, allowed: Collection[str], on_refused: Callable[[], None]) -> None:
        self._app = app
        self._allowed = allowed
        self._on_refused = on_refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (origin := refused_origin(scope, self._allowed)) is None:
            await self._app(scope, receive, send)
            return
        if scope["method"] == "POST":
            self._on_refused()
        await error_response(scope, foreign_origin(origin))(scope, receive, send)


def refused_origin(scope: Scope, allowed: Collection[str]) -> str | None:
    """That of a page that may not do this. A page cannot set Sec-Fetch-Site; behind a proxy that changes Host it alone tells that the page is this server's."""
    headers = Headers(scope=scope)
    origin = headers.get("origin")
    if origin is None or scope["method"] in _SAFE_METHODS or "*" in allowed or origin in allowed:
        return None
    return None if headers.get("sec-fetch-site") == "same-origin" or _is_of(origin, headers.get("host", "")) else origin


def _is_of(origin: str, host: str) -> bool:
    """The scheme is not compared: TLS may end in front of this server."""
    try:
        parts = urlsplit(origin.lower())
    except ValueError:
        return False
    port = _DEFAULT_PORTS.get(parts.scheme)
    return port is not None and bool(parts.netloc) and parts.netloc.removesuffix(port) == host.lower().removesuffix(port)
