"""create_app: routes, middleware and how errors are answered."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from stoker_engine.errors import EngineError
from stoker_gateway.api.chat_completions import create_chat_completion
from stoker_gateway.api.completions import create_completion
from stoker_gateway.api.engine_control import ENGINE_CONTROL_ROUTES
from stoker_gateway.api.engine_errors import NOT_READY_CODE, to_api_error
from stoker_gateway.api.health import livez, readyz, startupz
from stoker_gateway.api.load import load
from stoker_gateway.api.messages.create import count_tokens, create_message
from stoker_gateway.api.metrics import CONTENT_TYPE, Metrics, Refusal
from stoker_gateway.api.models import get_model, list_models
from stoker_gateway.api.openapi.endpoint import get_openapi
from stoker_gateway.api.playground import playground
from stoker_gateway.api.request_record import current_record
from stoker_gateway.api.responses.create import create_response
from stoker_gateway.api.responses.stored import cancel_response, delete_response, get_response, list_input_items
from stoker_gateway.api.state import ApiState
from stoker_gateway.api.tokenization import detokenize, tokenize
from stoker_gateway.api.version import version
from stoker_gateway.http.disconnect import CLIENT_CLOSED_REQUEST, ClientDisconnectedError
from stoker_gateway.http.drain import DrainMiddleware
from stoker_gateway.http.json_response import error_response
from stoker_gateway.openai.errors import ApiError, internal_error, method_not_allowed, route_not_found

logger = logging.getLogger(__name__)

Endpoint = Callable[[ApiState, Request], Awaitable[Response]]


async def metrics(state: ApiState, _request: Request) -> Response:
    return Response(state.metrics.render(state.engine.status), headers={"Content-Type": CONTENT_TYPE})


async def vllm_metrics(state: ApiState, _request: Request) -> Response:
    return Response(state.metrics.render_vllm(state.engine.status), headers={"Content-Type": CONTENT_TYPE})


ROUTES: tuple[tuple[str, str, Endpoint], ...] = (
    ("POST", "/v1/chat/completions", create_chat_completion),
    ("POST", "/v1/completions", create_completion),
    ("POST", "/v1/messages", create_message),
    ("POST", "/v1/messages/count_tokens", count_tokens),
    ("POST", "/v1/responses", create_response),
    ("GET", "/v1/responses/{response_id}", get_response),
    ("DELETE", "/v1/responses/{response_id}", delete_response),
    ("POST", "/v1/responses/{response_id}/cancel", cancel_response),
    ("GET", "/v1/responses/{response_id}/input_items", list_input_items),
    ("GET", "/v1/models", list_models),
    ("GET", "/v1/models/{model:path}", get_model),
    ("POST", "/tokenize", tokenize),
    ("POST", "/detokenize", detokenize),
    ("GET", "/", playground),
    ("GET", "/version", version),
    ("GET", "/openapi.json", get_openapi),
    ("GET", "/livez", livez),
    ("GET", "/readyz", readyz),
    ("GET", "/health", readyz),
    ("GET", "/startupz", startupz),
    ("GET", "/load", load),
    ("GET", "/metrics", metrics),
    ("GET", "/metrics/vllm", vllm_metrics),
)


def create_app(state: ApiState) -> FastAPI:
    """The ASGI application. It owns nothing: whoever made `state` starts and stops its engine."""
    app = FastAPI(title="Stoker", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for method, path, endpoint in (*ROUTES, *(ENGINE_CONTROL_ROUTES if state.config.enable_engine_control else ())):
        app.add_route(path, _bind(endpoint, state, path.replace(":path", "")), methods=[method])
    for kind in (ApiError, EngineError, ClientDisconnectedError, HTTPException, Exception):
        app.add_exception_handler(kind, _make_error_handler(state.metrics))
    app.add_middleware(DrainMiddleware, drain=state.drain, on_refused=partial(state.metrics.refused, Refusal.DRAINING))
    return app


def _bind(endpoint: Endpoint, state: ApiState, route: str) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        if (record := current_record()) is not None:
            record.route = route
        return await endpoint(state, request)

    return handle


def _make_error_handler(metrics: Metrics) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer_error(request: Request, error: Exception) -> Response:
        if isinstance(error, ClientDisconnectedError):
            logger.info("%s: the client disconnected; aborted", request.state.request_id)
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        translated = _translate(request, error)
        if request.method == "POST" and (refusal := _refusal(translated)) is not None:
            metrics.refused(refusal)
        return error_response(request.scope, translated)

    return answer_error


def _refusal(error: ApiError) -> Refusal | None:
    """None: the request was sent to the engine, and failed there."""
    if error.status == HTTPStatus.TOO_MANY_REQUESTS:
        return Refusal.QUEUE_FULL
    if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return Refusal.INVALID
    return Refusal.NOT_READY if error.code == NOT_READY_CODE else None


def _translate(request: Request, error: Exception) -> ApiError:
    """What the client is told. Of a bug it learns nothing: the server logs the traceback."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, EngineError):
        return to_api_error(error)
    if isinstance(error, HTTPException):  # the router's own 404 and 405
        allowed = (error.headers or {}).get("Allow")
        return method_not_allowed(request.method, request.url.path, allowed) if allowed else route_not_found(request.method, request.url.path)
    return internal_error("The server failed to answer this request.")
