"""GET /openapi.json."""

import functools

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from stoker_gateway.api.openapi.document import openapi_document
from stoker_gateway.api.state import ApiState
from stoker_gateway.http.json_response import json_response


async def get_openapi(state: ApiState, request: Request) -> Response:
    return json_response(_encoded(request.app.operations, state.model_names))


@functools.lru_cache(maxsize=2)
def _encoded(routes: tuple[tuple[str, str], ...], model_names: tuple[str, ...]) -> bytes:
    """It does not change: the work is done once."""
    return msgspec.json.encode(openapi_document(routes, model_names))
