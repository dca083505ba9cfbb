"""GET /: a page to talk to the model in a browser. It is one file, and asks nobody but this server."""

import base64
import functools
import hashlib
import html
import re
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from stoker_gateway.api.state import ApiState
from stoker_gateway.openai.errors import route_not_found

PATH = "/"
_FILE = Path(__file__).with_suffix(".html")


@dataclass(slots=True, frozen=True)
class Page:
    """`headers` let a browser run this page's own script and style, and send what it sends here and nowhere else."""

    body: bytes
    headers: dict[str, str]


async def playground(state: ApiState, request: Request) -> Response:
    """Raises ApiError (404) where it is turned off."""
    if not state.config.enable_playground:
        raise route_not_found("GET", PATH)
    page = make_page(state.model_names[0], asks_for_key=state.config.api_keys_file is not None)
    if page.headers["ETag"] in request.headers.get("If-None-Match", ""):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=page.headers)
    return Response(page.body, headers=page.headers, media_type="text/html")


@functools.lru_cache(maxsize=2)
def make_page(model: str, *, asks_for_key: bool) -> Page:
    """What the page cannot ask for before it has a key, or an engine, is written into it."""
    text = _FILE.read_text(encoding="utf-8")
    policy = _content_security_policy(text)
    body = text.replace("%MODEL%", html.escape(model)).replace("%ASKS_FOR_KEY%", str(asks_for_key).lower()).encode()
    return Page(
        body,
        {
            "Cache-Control": "no-cache",
            "Content-Security-Policy": policy,
            "Cross-Origin-Opener-Policy": "same-origin",
            "ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        },
    )


def _content_security_policy(text: str) -> str:
    """By hashes of the one script and the one style: what else may come into the page does not run."""
    directives = {
        "default-src": "'none'",
        "script-src": _hash_of("script", text),
        "style-src": _hash_of("style", text),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }
    return "; ".join(f"{name} {value}" for name, value in directives.items())


def _hash_of(element: str, text: str) -> str:
    (content,) = re.findall(f"<{element}>(.*?)</{element}>", text, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
