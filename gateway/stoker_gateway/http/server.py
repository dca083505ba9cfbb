"""The listener and the HTTP server: uvicorn on a socket that is bound first, with signals left to us."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from stoker_engine.errors import EngineError
from stoker_gateway.http.drain import ClientAddress
from stoker_gateway.http.protocol import HttpProtocol

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 75
"""Longer than gateways and client pools keep an idle connection (60 s), so that they close it and never write to one that is going."""
CLOSE_SECONDS = 5
"""For connections that are still open when the server ends."""


class ListenError(EngineError):
    """The HTTP address cannot be listened on. The message names it."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Connections wait in its backlog until the server runs. Raises ListenError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ListenError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def make_server(app: ASGIApp, protocol: type[HttpProtocol] = HttpProtocol) -> "Server":
    config = uvicorn.Config(
        app,
        loop="none",
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )
    return Server(config)


class Server(uvicorn.Server):
    """Leaves signals to the process, which drains before it stops the server."""

    def clients(self) -> frozenset[ClientAddress]:
        """The other ends of the connections that are open."""
        open_ones = [connection.client for connection in self.server_state.connections if isinstance(connection, HttpProtocol)]
        return frozenset(client for client in open_ones if client is not None)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
