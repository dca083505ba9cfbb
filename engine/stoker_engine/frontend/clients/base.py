"""EngineCoreClient: the five calls of every client, blocking or for asyncio, with the same meanings and errors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from stoker_engine.errors import UnsupportedClientError
from stoker_engine.protocol import EngineCoreOutputs, EngineCoreReadyResponse, EngineCoreRequest

if TYPE_CHECKING:
    from stoker_engine.frontend.clients.async_mp import AsyncMPClient
    from stoker_engine.frontend.clients.inproc import InprocClient, InprocCore
    from stoker_engine.frontend.clients.sync_mp import SyncMPClient


@dataclass(slots=True, frozen=True)
class ClientConfig:
    """Where a client finds its engine, and for how long it may be silent before its requests are given up."""

    socket_dir: str
    engine_index: int = 0
    hang_seconds: float = 60.0


class AsyncEngineCoreClient(Protocol):
    """An engine core, for asyncio."""

    async def add_request(self, request: EngineCoreRequest) -> None:
        """Raises EngineNotReadyError where no engine serves, EngineDeadError where it went away in this moment."""

    async def abort_requests(self, request_ids: list[str]) -> None:
        """No output follows. Never fails: an engine that is gone has no requests."""

    async def get_output(self) -> EngineCoreOutputs:
        """The next outputs. Raises EngineDeadError once for each engine that went away; only then may its successor serve."""

    async def call_utility(self, method: str, *args: Any) -> Any:
        """Calls a method of the engine. Raises EngineGenerateError with the engine's words if it fails, EngineDeadError if the engine goes away."""

    async def shutdown(self) -> None:
        """Closes the sockets. Idempotent."""


class EngineCoreClient(Protocol):
    """An engine core, for code that blocks: the calls of AsyncEngineCoreClient. `make_client` makes clients of either kind."""

    @overload
    @staticmethod
    def make_client(target: ClientConfig, *, multiprocess_mode: Literal[True], asyncio_mode: Literal[True]) -> "AsyncMPClient": ...
    @overload
    @staticmethod
    def make_client(target: ClientConfig, *, multiprocess_mode: Literal[True], asyncio_mode: Literal[False]) -> "SyncMPClient": ...
    @overload
    @staticmethod
    def make_client(target: "Callable[[], InprocCore]", *, multiprocess_mode: Literal[False], asyncio_mode: Literal[False]) -> "InprocClient": ...
    @staticmethod
    def make_client(
        target: "ClientConfig | Callable[[], InprocCore]", *, multiprocess_mode: bool, asyncio_mode: bool
    ) -> "AsyncMPClient | SyncMPClient | InprocClient":
        """`target` is where the sockets of an engine in another process are, or what makes a core in this one.

        An AsyncMPClient is to be made in its event loop. Raises UnsupportedClientError, a NotImplementedError, for a core in this process under asyncio:
        its steps would block the event loop.
        """
        # Each of them imports this module.
        from stoker_engine.frontend.clients.async_mp import AsyncMPClient
        from stoker_engine.frontend.clients.inproc import InprocClient
        from stoker_engine.frontend.clients.sync_mp import SyncMPClient

        if isinstance(target, ClientConfig) != multiprocess_mode:
            raise ValueError(f"multiprocess_mode={multiprocess_mode} does not fit a target of type {type(target).__name__}")
        if isinstance(target, ClientConfig):
            return AsyncMPClient(target) if asyncio_mode else SyncMPClient(target)
        if asyncio_mode:
            raise UnsupportedClientError(
                "asyncio needs an engine in another process (multiprocess_mode=True): in this one its steps would block the event loop"
            )
        return InprocClient(target())

    @property
    def ready_response(self) -> EngineCoreReadyResponse:
        """The engine's capacity. Raises EngineNotReadyError where no engine serves."""

    def add_request(self, request: EngineCoreRequest) -> None:
        """Raises EngineNotReadyError where no engine serves, EngineDeadError where it went away in this moment."""

    def abort_requests(self, request_ids: list[str]) -> None:
        """No output follows. Never fails: an engine that is gone has no requests."""

    def get_output(self) -> EngineCoreOutputs:
        """The next outputs, waited for or computed: none where the engine gives none, being paused. Raises EngineDeadError where it went away."""

    def call_utility(self, method: str, *args: Any) -> Any:
        """Calls a method of the engine. Raises EngineGenerateError with the engine's words if it fails, EngineDeadError if the engine goes away."""

    def shutdown(self) -> None:
        """Lets go of the engine. Idempotent."""
