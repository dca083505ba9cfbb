"""Which web pages of other origins may read the answers."""

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from stoker_gateway.http.request_id import HEADER, MESSAGES_HEADER

PREFLIGHT_SECONDS = 600
"""How long a browser may remember what it was told of another origin's rights."""


def with_cors(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """`app` checks itself where a page is from."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=(HEADER, MESSAGES_HEADER, "Retry-After"),
        max_age=PREFLIGHT_SECONDS,
    )
