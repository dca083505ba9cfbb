"""ApiApp: the endpoints, who may call them, and how errors are answered."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stoker_engine.errors import EngineError
from stoker_gateway.api.api_keys import OPEN_PATHS, ApiKeys
from stoker_gateway.api.chat_completions import create_chat_completion
from stoker_gateway.api.completions import create_completion
from stoker_gateway.api.engine_control import ENGINE_CONTROL_ROUTES
from stoker_gateway.api.engine_errors import NOT_READY_CODE, to_api_error
from stoker_gateway.api.health import livez, readyz, startupz
from stoker_gateway.api.load import load
from stoker_gateway.api.messages.create import count_tokens, create_message
from stoker_gateway.api.metrics import CONTENT_TYPE, Refusal
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
from stoker_gateway.http.json_response import error_response
from stoker_gateway.http.origins import refused_origin
from stoker_gateway.http.route_table import RouteTable
from stoker_gateway.openai.errors import DRAINING_CODE, ApiError, draining, foreign_origin, internal_error

logger = logging.getLogger(__name__)

_REFUSALS: dict[int, Refusal] = {HTTPStatus.UNAUTHORIZED: Refusal.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS: Refusal.QUEUE_FULL}

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


class ApiApp:
    """The ASGI application. It owns nothing: whoever made `state` starts and stops its engine.

    One layer, as a first token passes each: who may ask, draining, routing, and how errors are answered.
    """

    def __init__(self, state: ApiState, api_keys: ApiKeys | None) -> None:
        self._state = state
        self._api_keys = api_keys
        self._drain = state.drain
        self._routes = RouteTable((*ROUTES, *(ENGINE_CONTROL_ROUTES if state.config.enable_engine_control else ())))

    @property
    def operations(self) -> tuple[tuple[str, str], ...]:
        """The methods and paths that there are."""
        return self._routes.operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Work is every POST: it is counted, and refused while the api drains. Probes, metrics and the model list go on."""
        if scope["type"] != "http":
            return
        try:
            self._admit(scope)
        except ApiError as refusal:
            await self._explain(scope, refusal)(scope, receive, send)
            return
        with self._drain.in_flight() if scope["method"] == "POST" else nullcontext():
            await self._answer(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        """Raises ApiError: 403 for a page of another origin, 401 for what needs a key and brings none that is known, 503 for work while the api drains."""
        if (origin := refused_origin(scope, self._state.config.cors_allow_origins)) is not None:
            raise foreign_origin(origin)
        if self._api_keys is not None and scope["path"] not in OPEN_PATHS:
            self._api_keys.check(scope["headers"])
        if scope["method"] == "POST" and not self._drain.admits(scope.get("client")):
            raise draining()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = current_record()
        try:
            found = self._routes.find(scope["method"], scope["path"])
            if record is not None:
                record.route = found.template
            scope["app"], scope["path_params"] = self, found.parameters
            response = await found.endpoint(self._state, Request(scope, receive))
            await response(scope, receive, send)
        except Exception as error:
            if record is not None and record.status:
                raise  # an answer has begun: the server ends it with its connection
            await self._explain(scope, error)(scope, receive, send)

    def _explain(self, scope: Scope, error: Exception) -> Response:
        if isinstance(error, ClientDisconnectedError):
            logger.info("%s: the client disconnected; aborted", scope["state"]["request_id"])
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        translated = _translate(error)
        if translated is None:
            logger.error("%s: failed", scope["state"]["request_id"], exc_info=error)
            translated = internal_error("The server failed to answer this request.")
        if scope["method"] == "POST" and (refusal := _refusal(translated)) is not None:
            self._state.metrics.refused(refusal)
        return error_response(scope, translated)


def _refusal(error: ApiError) -> Refusal | None:
    """None: the request was sent to the engine, and failed there."""
    if error.status in _REFUSALS:
        return _REFUSALS[error.status]
    if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return Refusal.INVALID
    return {NOT_READY_CODE: Refusal.NOT_READY, DRAINING_CODE: Refusal.DRAINING}.get(error.code or "")


def _translate(error: Exception) -> ApiError | None:
    """What the client is told. None for a bug, of which it learns nothing."""
    if isinstance(error, ApiError):
        return error
    return to_api_error(error) if isinstance(error, EngineError) else None
