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
        if scope["type"] != "http" or scope["method"] in _SAFE_METHODS or self._is_allowed(headers := Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        if scope["method"] == "POST":
            self._on_refused()
        await error_response(scope, foreign_origin(headers["origin"]))(scope, receive, send)

    def _is_allowed(self, headers: Headers) -> bool:
        """A page cannot set Sec-Fetch-Site; behind a proxy that changes Host it alone tells that the page is this server's."""
        origin = headers.get("origin")
        if origin is None or "*" in self._allowed or origin in self._allowed:
            return True
        return headers.get("sec-fetch-site") == "same-origin" or _is_of(origin, headers.get("host", ""))


def _is_of(origin: str, host: str) -> bool:
    """The scheme is not compared: TLS may end in front of this server."""
    try:
        parts = urlsplit(origin.lower())
    except ValueError:
        return False
    port = _DEFAULT_PORTS.get(parts.scheme)
    return port is not None and bool(parts.netloc) and parts.netloc.removesuffix(port) == host.lower().removesuffix(port)
