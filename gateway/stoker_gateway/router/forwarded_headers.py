"""Which headers go on, in both directions, and the head of a request as a replica gets it."""

from collections.abc import Iterable, Sequence

from stoker_gateway.router.upstream_answer import Header

HOP_BY_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    )
)
"""They speak of one connection."""

_NOT_FORWARDED = HOP_BY_HOP | {b"content-length", b"expect", b"origin", b"x-request-id", b"x-forwarded-for"}
"""The gateway has judged the origin and answers `expect` itself; the others it writes anew."""

_NOT_RETURNED = HOP_BY_HOP | {b"date", b"x-request-id"}
"""The gateway writes these itself."""


def request_head(target: bytes, headers: Sequence[Header], client: str | None, *, request_id: str, content_length: int, method: str = "POST") -> bytes:
    """A request's line and headers. The body goes on as it came, but in one piece: its length is known."""
    lines = [method.encode("latin-1"), b" ", target, b" HTTP/1.1\r\n"]
    forwarded_for = [value for name, value in headers if name == b"x-forwarded-for"]
    for name, value in _kept(headers, _NOT_FORWARDED):
        lines += (name, b": ", value, b"\r\n")
    if all(name != b"host" for name, _ in headers):
        lines.append(b"host: stoker-gateway\r\n")
    if client is not None:
        forwarded_for.append(client.encode("latin-1", "replace"))
    if forwarded_for:
        lines += (b"x-forwarded-for: ", b", ".join(forwarded_for), b"\r\n")
    lines.append(b"x-request-id: %s\r\ncontent-length: %d\r\n\r\n" % (request_id.encode("latin-1"), content_length))
    return b"".join(lines)


def returned_headers(headers: Sequence[Header]) -> list[Header]:
    """Those of a replica's answer that its client gets."""
    return _kept(headers, _NOT_RETURNED)


def _kept(headers: Sequence[Header], dropped: frozenset[bytes]) -> list[Header]:
    named = _named_by_connection(headers)
    if named:
        dropped = dropped | named
    return [header for header in headers if header[0] not in dropped]


def _named_by_connection(headers: Iterable[Header]) -> frozenset[bytes]:
    """What `Connection` names belongs to the connection, too."""
    values = [value for name, value in headers if name == b"connection"]
    if not values:
        return frozenset()
    return frozenset(token.strip().lower() for value in values for token in value.split(b",")) - {b"close", b"keep-alive", b"host", b"content-type"}
