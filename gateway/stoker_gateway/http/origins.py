"""Web pages of other origins may have no work done. Some POSTs of theirs a browser sends without asking first; it hides the answer alone."""

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def refused_origin(scope: Scope, allowed: Collection[str]) -> str | None:
    """That of a page that may not do this. A page cannot set Sec-Fetch-Site; behind a proxy that changes Host it alone tells that the page is this server's."""
    if all(name != b"origin" for name, _ in scope["headers"]):
        return None
    headers = Headers(scope=scope)
    origin = headers["origin"]
    if scope["method"] in _SAFE_METHODS or "*" in allowed or origin in allowed:
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
