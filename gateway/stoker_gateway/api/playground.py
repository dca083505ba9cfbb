"""GET /: a page to talk to the model in a browser."""

import functools
from http import HTTPStatus
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from stoker_gateway.api.state import ApiState
from stoker_gateway.http import web_page
from stoker_gateway.http.web_page import Page
from stoker_gateway.openai.errors import route_not_found

PATH = "/"
_FILE = Path(__file__).with_suffix(".html")


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
    return web_page.make_page(_FILE, {"%MODEL%": model, "%ASKS_FOR_KEY%": str(asks_for_key).lower()})
