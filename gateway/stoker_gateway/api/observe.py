"""ObserveMiddleware: the outermost layer. Request ids, and a record of each request for those who observe them."""

import time
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stoker_gateway.api.request_record import Observer, RequestRecord, begin_record
from stoker_gateway.http.drain import Drain
from stoker_gateway.http.json_response import is_messages
from stoker_gateway.http.request_id import HEADER, MESSAGES_HEADER, make_request_id
from stoker_gateway.http.trace_headers import trace_headers

_NAME = HEADER.lower()
_CLOSE = b"connection", b"close"
_HEADER, _MESSAGES_HEADER = _NAME.encode(), MESSAGES_HEADER.encode()


class ObserveMiddleware:
    """Takes or makes the request's id and puts it on the response. An id that is not 1 to 128 visible ASCII characters is replaced.

    A response that begins while the api drains ends its connection.
    """

    def __init__(self, app: ASGIApp, drain: Drain, observers: Sequence[Observer]) -> None:
        self._app = app
        self._drain = drain
        self._observers = observers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = _make_record(scope)
        scope.setdefault("state", {})["request_id"] = record.request_id
        begin_record(record)
        request_id = record.request_id.encode()
        id_headers = [(name, request_id) for name in ((_HEADER, _MESSAGES_HEADER) if is_messages(scope) else (_HEADER,))]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message["headers"], *id_headers]
                if self._drain.is_draining and all(name != _CLOSE[0] for name, _ in message["headers"]):
                    message["headers"].append(_CLOSE)
            await send(message)

        started = time.perf_counter()
        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            record.seconds = time.perf_counter() - started
            for observer in self._observers:
                observer(record)


def _make_record(scope: Scope) -> RequestRecord:
    # Of several of a name, the first.
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
    return RequestRecord(
        request_id=make_request_id(headers.get(_NAME, "")),
        method=scope["method"],
        path=scope["raw_path"].decode("latin-1"),
        started=time.time(),
        trace_headers=trace_headers(headers),
    )
