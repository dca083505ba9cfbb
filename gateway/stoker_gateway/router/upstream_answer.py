"""UpstreamAnswer: one answer of a replica, found in the bytes that come."""

from dataclasses import dataclass

import httptools

from stoker_gateway.router.upstream_errors import UpstreamBrokenError

Header = tuple[bytes, bytes]

MAX_HEAD_BYTES = 64 * 1024
"""Of an answer's status line and headers together."""


@dataclass(slots=True, frozen=True)
class ResponseHead:
    """The names are lower case."""

    status: int
    headers: list[Header]

    def get(self, name: bytes) -> bytes | None:
        return next((value for header, value in self.headers if header == name), None)


class UpstreamAnswer:
    """`feed` it what comes, `take` what of its body has come."""

    __slots__ = ("_has_length", "_head_bytes", "_headers", "_is_interim", "_parser", "_parts", "head", "is_complete", "keeps_alive", "num_waiting_bytes")

    def __init__(self) -> None:
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._headers: list[Header] = []
        self._head_bytes = 0
        self._has_length = False
        self._is_interim = False
        self._parts: list[bytes] = []
        self.head: ResponseHead | None = None
        """Of the final answer; None until it has come."""
        self.num_waiting_bytes = 0
        """Of its body, that nobody has taken."""
        self.is_complete = False
        """Whether all of it has come."""
        self.keeps_alive = False
        """Whether its connection can have another one."""

    @property
    def has_begun(self) -> bool:
        """Whether a byte of it has come."""
        return self._head_bytes > 0

    def feed(self, data: bytes) -> None:
        """Raises UpstreamBrokenError."""
        if self.head is None:
            self._head_bytes += len(data)
        try:
            if self._parser is not None:
                self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise UpstreamBrokenError(f"its answer is no HTTP: {error}") from None
        if self.head is None and self._head_bytes > MAX_HEAD_BYTES:
            raise UpstreamBrokenError(f"the head of its answer is longer than {MAX_HEAD_BYTES} bytes")
        if self.is_complete:
            self._parser = None  # which holds this object

    def take(self) -> bytes:
        """Nothing where nothing has come since."""
        piece = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        self.num_waiting_bytes = 0
        return piece

    def end(self) -> None:
        """The connection was closed in order: with it ends an answer without a length."""
        self.is_complete = self.is_complete or (self.head is not None and not self._has_length)

    def drop(self) -> None:
        """Nothing more comes."""
        self._parser = None

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self.is_complete:
            self.keeps_alive = False  # an answer that nobody asked for

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is not None:
            return  # a trailer
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._has_length = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.head is not None or self._parser is None:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._is_interim = True
            self._headers = []
            self._has_length = False
            return
        self._has_length = self._has_length or status in (204, 304)
        self.keeps_alive = self._parser.should_keep_alive()
        self.head = ResponseHead(status, self._headers)

    def on_body(self, body: bytes) -> None:
        if not self.is_complete:
            self._parts.append(body)
            self.num_waiting_bytes += len(body)

    def on_message_complete(self) -> None:
        if self._is_interim:
            self._is_interim = False
        else:
            self.is_complete = True
