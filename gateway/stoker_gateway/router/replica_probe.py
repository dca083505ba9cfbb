"""One GET to a replica's probe paths, apart from the connections that requests use: those may be what is broken."""

import asyncio
import logging
from dataclasses import dataclass, field

import httptools

from stoker_gateway.router.fleet_view import Address

logger = logging.getLogger(__name__)

READINESS_PATH = "/readyz"

PROBE_SECONDS = 2.0
"""From the connection to the end of the answer."""

MAX_BYTES = 64 * 1024
"""No probe path answers with more."""


@dataclass(slots=True)
class ProbeAnswer:
    """What a replica said of itself."""

    status: int = 0
    body: bytes = b""


@dataclass(slots=True)
class _Reader:
    """httptools' callbacks."""

    body: bytearray = field(default_factory=bytearray)
    is_complete: bool = False

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.is_complete = True


async def probe(address: Address, path: str) -> ProbeAnswer | None:
    """None where nothing that can be read came in time. Raises nothing: whatever one replica sends, the others are asked on."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            return await _get(address, path)
    except (OSError, ValueError, httptools.HttpParserError, httptools.HttpParserUpgrade):  # ValueError: no name of a host that can be looked up
        return None
    except Exception:
        logger.exception("%s: could not ask for %s", address, path)
        return None


async def _get(address: Address, path: str) -> ProbeAnswer | None:
    stream, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: stoker-gateway\r\nAccept: application/json\r\nConnection: close\r\n\r\n".encode())
        reader = _Reader()
        parser = httptools.HttpResponseParser(reader)
        num_bytes = 0
        while not reader.is_complete:
            data = await stream.read(MAX_BYTES)
            num_bytes += len(data)
            if not data or num_bytes > MAX_BYTES:
                return None
            parser.feed_data(data)
        return ProbeAnswer(parser.get_status_code(), bytes(reader.body))
    finally:
        writer.transport.abort()
