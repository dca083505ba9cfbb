"""The API key that a request brings."""

from collections.abc import Iterable


def key_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Of `Authorization: Bearer` or, as Anthropic's clients send it, of `x-api-key`; empty where there is none. The names are lower case."""
    found = b""
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer" and key.strip():
                return key.strip()
        elif name == b"x-api-key":
            found = value
    return found
