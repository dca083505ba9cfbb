"""Answers of no known length to HTTP/1.0, which knows no chunks: they end with their connection."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_FRAMING = frozenset((b"content-length", b"transfer-encoding"))


def unframed(app: ASGIApp, cycle: RequestResponseCycle) -> ASGIApp:
    """For one request. uvicorn would send chunks."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        is_unframed = False

        async def send_unframed(message: Message) -> None:
            nonlocal is_unframed
            if message["type"] == "http.response.start" and all(name.lower() not in _FRAMING for name, _ in message.get("headers", ())):
                is_unframed = True
                cycle.chunked_encoding = False
            elif is_unframed:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_unframed)

    return answer
