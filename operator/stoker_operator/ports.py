"""Which ports the gateway, the apis and the engines listen on: chosen and tried before anything starts."""

import errno
import socket
from collections.abc import Iterator

from stoker_operator.errors import LocalError

MAX_PORT = 65535


def choose_ports(host: str, first: int, count: int) -> list[int]:
    """`first` (0: any free port) and the next free ones. Raises LocalError if `first` is in use or `host` is not an address of this machine."""
    if count == 0:
        return []
    port = _try(host, first)
    if port is None:
        raise LocalError(f"port {first} on {host} is in use; stop what listens there or choose another with --port")
    ports = [port, *_free_after(host, port, count - 1)]
    if len(ports) < count:
        raise LocalError(
            f"{count} free ports are needed on {host}, one for each api and engine and a gateway before several, "
            f"and from {port} to {MAX_PORT} there are {len(ports)}; choose a lower --port"
        )
    return ports


def _free_after(host: str, port: int, count: int) -> Iterator[int]:
    for candidate in range(port + 1, MAX_PORT + 1):
        if count == 0:
            return
        if _try(host, candidate) is not None:
            count -= 1
            yield candidate


def _try(host: str, port: int) -> int | None:
    """The port, after listening on it once; None if it is in use."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.create_server(address[:2], family=family) as server:
            chosen: int = server.getsockname()[1]
            return chosen
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
        raise LocalError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    except UnicodeError as error:
        raise LocalError(f"cannot listen on {host}:{port}: not the name of a host; set --host to an address of this machine") from error
