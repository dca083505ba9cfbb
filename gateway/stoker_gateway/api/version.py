"""GET /version."""

from starlette.requests import Request
from starlette.responses import Response

from stoker_engine.version import __version__
from stoker_gateway.api.state import ApiState
from stoker_gateway.http.json_response import json_response
from stoker_gateway.openai.protocol import encode
from stoker_gateway.openai.tokenization import Version


async def version(_state: ApiState, _request: Request) -> Response:
    return json_response(encode(Version(__version__)))
