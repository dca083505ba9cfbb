"""Responses whose body msgspec has written."""

from starlette.responses import Response

from stoker_gateway.openai.errors import ApiError

_MEDIA_TYPE = "application/json"


def json_response(body: bytes, status: int = 200) -> Response:
    return Response(body, status_code=status, media_type=_MEDIA_TYPE)


def error_response(error: ApiError) -> Response:
    return Response(error.body(), status_code=error.status, headers=error.headers, media_type=_MEDIA_TYPE)
