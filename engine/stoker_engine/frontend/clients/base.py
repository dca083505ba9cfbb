"""EngineCoreClient: the five calls of every client, blocking or for asyncio, with the same meanings and errors."""

from dataclasses import dataclass
from typing import Any, Protocol

from stoker_engine.protocol import EngineCoreOutputs, EngineCoreReadyResponse, EngineCoreRequest


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
    """An engine core, for code that blocks: the calls of AsyncEngineCoreClient."""

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
