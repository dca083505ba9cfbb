"""GET / of the gateway: a page that shows the fleet and talks to any model, and the events it lives on."""

from pathlib import Path

from stoker_gateway.http.disconnect import cancelled_by_disconnect
from stoker_gateway.http.web_page import make_page
from stoker_gateway.openai.streaming import CONTENT_TYPE, HEADERS
from stoker_gateway.router.admission.admission import Admission
from stoker_gateway.router.exchange import Exchange
from stoker_gateway.router.fleet_page.feed import FleetFeed
from stoker_gateway.router.upstream_answer import Header

PAGE_PATH = "/"
EVENTS_PATH = "/fleet/events"

_EVENT_STREAM: tuple[Header, ...] = ((b"content-type", CONTENT_TYPE.encode()), *((name.lower().encode(), value.encode()) for name, value in HEADERS.items()))


class FleetPage:
    """The page itself is for everybody; what it shows needs a key where keys are asked for."""

    def __init__(self, feed: FleetFeed, admission: Admission) -> None:
        self._feed = feed
        self._admission = admission
        page = make_page(Path(__file__).with_suffix(".html"), {"%ASKS_FOR_KEY%": str(admission.asks_for_key).lower()})
        self._body = page.body
        self._etag = page.headers["ETag"].encode()
        self._headers = tuple((name.lower().encode(), value.encode()) for name, value in page.headers.items())

    async def show(self, exchange: Exchange) -> None:
        if self._etag in (exchange.header(b"if-none-match") or b""):
            await exchange.begin(304, self._headers)
            await exchange.end()
        else:
            await exchange.answer(200, (*self._headers, (b"content-type", b"text/html; charset=utf-8")), self._body)

    async def tell(self, exchange: Exchange) -> None:
        """Until the client leaves, its key is taken from it, or the gateway ends."""
        if exchange.scope["method"] == "HEAD":
            await exchange.answer(200, _EVENT_STREAM, b"")
            return
        with self._feed.watcher() as watcher, cancelled_by_disconnect(exchange.scope):
            await exchange.begin(200, _EVENT_STREAM)
            while (event := await watcher.next()) is not None:
                self._admission.caller(exchange.headers)
                await exchange.write(event)
            await exchange.end()
