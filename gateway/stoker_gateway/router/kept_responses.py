"""KeptResponses: a response is kept by the replica that made it. Its id tells the model, whose replicas are asked in turn.

Those of other models are not: the caller's key is none of their business.
"""

from collections.abc import Awaitable, Callable

from stoker_gateway.openai.response_ids import is_response_of
from stoker_gateway.router.asking import Message, Refusal
from stoker_gateway.router.body_memory import HeldBody
from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.errors import keeper_unreachable, not_synced, response_not_found
from stoker_gateway.router.exchange import Exchange
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.forwarded_headers import request_head
from stoker_gateway.router.served_model import ServedModel
from stoker_gateway.router.upstream_errors import ConnectError

PREFIX = "/v1/responses/"
ROUTE = "/v1/responses/{response_id}"

METHODS = frozenset(("GET", "DELETE", "POST"))

Ask = Callable[[Exchange, Endpoint, Message], Awaitable[Refusal | None]]
"""Of one replica. Raises ConnectError where nothing was sent."""


class KeptResponses:
    """Answers all that is under a response's id."""

    def __init__(self, fleet: Fleet, ask: Ask) -> None:
        self._fleet = fleet
        self._ask = ask

    async def handle(self, exchange: Exchange, body: HeldBody) -> None:
        """Raises ApiError: 404 where no replica has it, 503 where one that may have it could not be asked."""
        response_id = exchange.scope["path"].removeprefix(PREFIX).partition("/")[0]
        if not self._fleet.is_synced:
            raise not_synced()
        head = request_head(
            exchange.target,
            exchange.headers,
            exchange.client,
            method=exchange.scope["method"],
            request_id=exchange.record.request_id,
            content_length=len(body.raw),
        )
        is_unsure = False
        for model in [model for model in self._fleet.models if is_response_of(response_id, model.view.served_names[0])]:
            message = Message(head, body, model.view.traffic.timeouts)
            # One that is not ready may answer all the same: a draining one does.
            for endpoint in sorted(model.endpoints, key=lambda each: not each.is_ready):
                if not self._has(model, endpoint):
                    is_unsure = True
                    continue
                try:
                    refusal = await self._ask(exchange, endpoint, message)
                except ConnectError:
                    is_unsure = True
                    continue
                if refusal is None:
                    exchange.record.model = model.names[0]
                    return
                is_unsure |= refusal.head.status != 404
        raise keeper_unreachable(repr(response_id)) if is_unsure else response_not_found(response_id)

    def _has(self, model: ServedModel, endpoint: Endpoint) -> bool:
        """Another replica's answer may have taken long."""
        return endpoint in model.endpoints and model in self._fleet.models
