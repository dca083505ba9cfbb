"""make_client: the client for each way to reach an engine core."""

from collections.abc import Callable
from typing import Literal, overload

from stoker_engine.errors import UnsupportedClientError
from stoker_engine.frontend.clients.async_mp import AsyncMPClient
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.frontend.clients.inproc import InprocClient, InprocCore
from stoker_engine.frontend.clients.sync_mp import SyncMPClient

MakeCore = Callable[[], InprocCore]


@overload
def make_client(target: ClientConfig, *, multiprocess_mode: Literal[True], asyncio_mode: Literal[True]) -> AsyncMPClient: ...
@overload
def make_client(target: ClientConfig, *, multiprocess_mode: Literal[True], asyncio_mode: Literal[False]) -> SyncMPClient: ...
@overload
def make_client(target: MakeCore, *, multiprocess_mode: Literal[False], asyncio_mode: Literal[False]) -> InprocClient: ...


def make_client(target: ClientConfig | MakeCore, *, multiprocess_mode: bool, asyncio_mode: bool) -> AsyncMPClient | SyncMPClient | InprocClient:
    """`target` is where the sockets of an engine in another process are, or what makes a core in this one.

    An AsyncMPClient is to be made in its event loop. Raises UnsupportedClientError, a NotImplementedError, for a core in this process under asyncio:
    its steps would block the event loop.
    """
    if isinstance(target, ClientConfig) != multiprocess_mode:
        raise ValueError(f"multiprocess_mode={multiprocess_mode} does not fit a target of type {type(target).__name__}")
    if not isinstance(target, ClientConfig):
        if asyncio_mode:
            raise UnsupportedClientError(
                "asyncio needs an engine in another process (multiprocess_mode=True): in this one its steps would block the event loop"
            )
        return InprocClient(target())
    return AsyncMPClient(target) if asyncio_mode else SyncMPClient(target)
