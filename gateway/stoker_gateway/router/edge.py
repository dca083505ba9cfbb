"""What surrounds the gateway's application: which web pages may use it."""

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from stoker_gateway.http.origins import OriginMiddleware
from stoker_gateway.http.request_id import HEADER, MESSAGES_HEADER

PREFLIGHT_SECONDS = 600
"""How long a browser may remember what it was told of another origin's rights."""


def surround(app: ASGIApp, cors_origins: Sequence[str]) -> ASGIApp:
    """CORS is outside of the origins' check: its preflights bring nothing, and a refusal needs its headers, too."""
    app = OriginMiddleware(app, cors_origins, _nobody)
    if not cors_origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=cors_origins,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=(HEADER, MESSAGES_HEADER, "Retry-After"),
        max_age=PREFLIGHT_SECONDS,
    )


def _nobody() -> None:
    """Counts refusals; the access log has none of them."""
