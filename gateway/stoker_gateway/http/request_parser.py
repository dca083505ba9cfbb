"""RequestParser: httptools' parser for a server that never upgrades: a request that offers to is read as any other, with its body.

Java's HTTP client offers HTTP/2 with the first request of a connection; httptools would leave its body out.
"""

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_FRAMING = (b"content-length", b"transfer-encoding")


class _AfterUpgrade:
    """Callbacks to the protocol; `is_body_only` until the message's end: its head is known already."""

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        self._protocol = protocol
        self.is_body_only = True
        self.on_body = protocol.on_body

    def on_message_begin(self) -> None:
        if not self.is_body_only:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self.is_body_only:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.is_body_only:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self.is_body_only:
            self._protocol.on_headers_complete()

    def on_message_complete(self) -> None:
        self.is_body_only = False
        self._protocol.on_message_complete()


class RequestParser:
    """What of a HttpRequestParser the protocol uses. At the end of a message the protocol asks whether `is_upgrading`: then its body is still to be read."""

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        self._protocol = protocol
        self._parser = _make_parser(protocol)

    def close(self) -> None:
        """Lets go of the protocol, to which it belongs."""
        del self._parser, self._protocol

    @property
    def is_upgrading(self) -> bool:
        return self._parser.should_upgrade()

    def feed_data(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._read_body(data[upgrade.args[0] :])

    def _read_body(self, data: bytes) -> None:
        """With a parser that is told the body's framing alone."""
        framing = b"".join(b"%s: %s\r\n" % header for header in self._protocol.headers if header[0] in _FRAMING)
        self._parser = _make_parser(_AfterUpgrade(self._protocol))
        self.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n" + data)

    def get_http_version(self) -> str:
        return self._parser.get_http_version()

    def get_method(self) -> bytes:
        return self._parser.get_method()

    def should_keep_alive(self) -> bool:
        return self._parser.should_keep_alive()

    def should_upgrade(self) -> bool:
        return False


def _make_parser(callbacks: HttpToolsProtocol | _AfterUpgrade) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(callbacks)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser
