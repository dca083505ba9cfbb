"""GatewayApp: the ASGI application. The gateway's own paths, and all that is sent on by the model that it names."""

import logging
from collections.abc import Awaitable, Callable, Collection
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec
from starlette.types import Receive, Scope, Send

from stoker_gateway.http.disconnect import CLIENT_CLOSED_REQUEST, ClientDisconnectedError
from stoker_gateway.http.origins import refused_origin
from stoker_gateway.openai.errors import ApiError, draining, foreign_origin, internal_error, method_not_allowed, route_not_found
from stoker_gateway.router.access_log import log_access
from stoker_gateway.router.admission.admission import Admission
from stoker_gateway.router.exchange import Exchange
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.fleet_page.page import EVENTS_PATH, PAGE_PATH, FleetPage
from stoker_gateway.router.gateway_metrics import CONTENT_TYPE, GatewayMetrics
from stoker_gateway.router.kept_responses import METHODS, PREFIX, ROUTE
from stoker_gateway.router.lifecycle import Lifecycle
from stoker_gateway.router.models import get_model, list_models
from stoker_gateway.router.proxy import Proxy
from stoker_gateway.router.routed_request import Observer

if TYPE_CHECKING:
    from stoker_gateway.router.tracing import Tracing

logger = logging.getLogger(__name__)

PROXIED = frozenset(
    (
        *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
        *("/v1/embeddings", "/tokenize", "/detokenize"),
    )
)
"""Those that the access log and the metrics know by name."""

API = "/v1/"
"""Every other POST under it is sent on as well: its replica knows what there is. What is elsewhere is for whoever runs a replica: /sleep, /pause."""

MODELS = "/v1/models"

OPEN_PATHS = frozenset(("/livez", "/readyz", "/health", "/metrics", PAGE_PATH))
"""What the kubelet and Prometheus ask for, and a page that asks for a key itself: none is needed."""

_encode = msgspec.json.Encoder().encode


def _is_api(path: str) -> bool:
    """Also for whoever resolves the dots of a path."""
    return path in PROXIED or (path.startswith(API) and "/.." not in path)


class Health(msgspec.Struct, omit_defaults=True):
    """`reason` says what is missing."""

    status: str
    reason: str = ""


class GatewayApp:
    """It owns nothing: whoever made its parts starts and stops them."""

    def __init__(self, fleet: Fleet, proxy: Proxy, lifecycle: Lifecycle, admission: Admission, metrics: GatewayMetrics) -> None:
        self._fleet = fleet
        self._proxy = proxy
        self._lifecycle = lifecycle
        self._admission = admission
        self._metrics = metrics
        self._origins: Collection[str] = ()
        self._tracing: Tracing | None = None
        self.observers: tuple[Observer, ...] = (log_access, metrics.observe)
        self._own: dict[str, Callable[[Exchange], Awaitable[None]]] = {
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/health": self._readyz,
            "/metrics": self._show_metrics,
            MODELS: self._models,
        }

    def add_page(self, page: FleetPage) -> None:
        self._own |= {PAGE_PATH: page.show, EVENTS_PATH: page.tell}

    def allow_origins(self, origins: Collection[str]) -> None:
        """Whose web pages may do what changes something. Default: the gateway's own alone."""
        self._origins = origins

    def trace(self, tracing: "Tracing") -> None:
        """Each POST gets a span."""
        self._tracing = tracing
        self.observers += (tracing.observe,)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send, self._lifecycle)
        record = exchange.record
        try:
            await self._answer_or_fail(exchange)
        except ClientDisconnectedError:
            record.status = record.status or CLIENT_CLOSED_REQUEST
            record.error = record.error or "client_disconnected"
        finally:
            record.seconds = perf_counter() - record.started
            for observe in self.observers:
                observe(record)

    async def _answer_or_fail(self, exchange: Exchange) -> None:
        try:
            await self._answer(exchange)
        except ApiError as error:
            await exchange.fail(error)
        except ClientDisconnectedError:
            raise
        except Exception:
            logger.exception("%s: failed", exchange.record.request_id)
            await exchange.fail(internal_error("The gateway failed to answer this request."))

    async def _answer(self, exchange: Exchange) -> None:
        method, path = exchange.scope["method"], exchange.scope["path"]
        exchange.record.route = self._route(path)
        if self._tracing is not None:
            exchange.headers = self._tracing.begin(exchange.record, exchange.headers)
        if (origin := refused_origin(exchange.scope, self._origins)) is not None:
            raise foreign_origin(origin)
        if path not in OPEN_PATHS:
            exchange.identify(self._admission.caller(exchange.headers))
        if path.startswith(PREFIX) and method not in METHODS:
            raise method_not_allowed(method, path, "GET, DELETE, POST")
        if path.startswith(PREFIX) or (method == "POST" and path not in self._own and _is_api(path)):
            await self._send_on(exchange)
            return
        own = self._own.get(path)
        if own is None and path.startswith(MODELS + "/"):
            own = self._model
        if own is not None and method in ("GET", "HEAD"):
            await own(exchange)
        elif own is not None:
            raise method_not_allowed(method, path, "GET")
        elif path in PROXIED:
            raise method_not_allowed(method, path, "POST")
        else:
            raise route_not_found(method, path)

    def _route(self, path: str) -> str:
        """As the access log and the metrics have it; empty for what strangers make up."""
        if path.startswith(MODELS + "/"):
            return MODELS + "/{model}"
        if path.startswith(PREFIX):
            return ROUTE
        return path if path in PROXIED or path in self._own else ""

    async def _send_on(self, exchange: Exchange) -> None:
        drain = self._lifecycle.drain
        if not drain.admits(exchange.scope["client"]):
            raise draining()
        self._admission.start_request(exchange.caller)
        with drain.in_flight():
            try:
                await self._proxy.handle(exchange)
            finally:
                exchange.charge()

    async def _livez(self, exchange: Exchange) -> None:
        await exchange.answer_json(_encode(Health("ok")))

    async def _readyz(self, exchange: Exchange) -> None:
        reason = "the gateway is leaving" if self._lifecycle.is_leaving else "" if self._fleet.is_synced else "the gateway does not know its models yet"
        await exchange.answer_json(_encode(Health("not ready", reason) if reason else Health("ok")), 503 if reason else 200)

    async def _show_metrics(self, exchange: Exchange) -> None:
        await exchange.answer(200, ((b"content-type", CONTENT_TYPE),), await self._metrics.render())

    async def _models(self, exchange: Exchange) -> None:
        await exchange.answer_json(list_models(self._fleet))

    async def _model(self, exchange: Exchange) -> None:
        path: str = exchange.scope["path"]
        await exchange.answer_json(get_model(self._fleet, path.removeprefix(MODELS + "/")))
