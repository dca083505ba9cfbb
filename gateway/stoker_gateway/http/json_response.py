"""Responses whose body msgspec has written."""

from starlette.responses import Response
from starlette.types import Scope

from stoker_gateway.anthropic.errors import messages_error
from stoker_gateway.openai.errors import ApiError

_MEDIA_TYPE = "application/json"


def json_response(body: bytes, status: int = 200) -> Response:
    return Response(body, status_code=status, media_type=_MEDIA_TYPE)


def is_messages(scope: Scope) -> bool:
    """Anthropic's API was asked."""
    path: str = scope["path"]
    return path == "/v1/messages" or path.startswith("/v1/messages/")


def error_response(scope: Scope, error: ApiError) -> Response:
    """In the shape of the API that was asked."""
    body = messages_error(error, scope.get("state", {}).get("request_id")) if is_messages(scope) else error.body()
    return Response(body, status_code=error.status, headers=error.headers, media_type=_MEDIA_TYPE)
