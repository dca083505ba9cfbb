"""EngineStatus: what an api knows of its engine, for health, tables and error messages."""

from dataclasses import dataclass

from stoker_engine.protocol import UNRESPONSIVE_SECONDS, EngineCoreReadyResponse, EnginePhase, Heartbeat


@dataclass(slots=True, frozen=True)
class EngineStatus:
    """`phase` None: no engine has said hello yet. `seconds` is how long the phase has lasted, `silence` how long nothing was heard of the engine.

    After an engine's end `is_connected` is False and `phase` and `message` keep its last words until the next one says hello.
    """

    phase: EnginePhase | None = None
    progress: float = 0.0
    seconds: float = 0.0
    message: str = ""
    is_connected: bool = False
    silence: float = 0.0
    ready: EngineCoreReadyResponse | None = None
    heartbeat: Heartbeat | None = None

    @property
    def is_ready(self) -> bool:
        """It serves: READY, connected, heard of within UNRESPONSIVE_SECONDS."""
        return self.phase is EnginePhase.READY and self.takes_calls

    @property
    def is_sleeping(self) -> bool:
        return self.phase is EnginePhase.SLEEPING

    @property
    def takes_calls(self) -> bool:
        """Its methods may be called: it serves, or would if it were not asleep."""
        return (self.phase is EnginePhase.READY or self.is_sleeping) and self.ready is not None and self.is_connected and not self.is_unresponsive

    @property
    def is_draining(self) -> bool:
        return self.phase is EnginePhase.DRAINING

    @property
    def is_unresponsive(self) -> bool:
        return self.is_connected and self.silence > UNRESPONSIVE_SECONDS

    @property
    def explanation(self) -> str:
        """Why it does not serve, for an error message."""
        if self.is_unresponsive:
            return f"the engine has not been heard of for {self.silence:.0f} s"
        if self.phase is None:
            return "no engine has connected yet"
        if not self.is_connected:
            return f"the engine is gone{': ' + self.message if self.message else ''}"
        if self.phase is EnginePhase.FAILED:
            return f"the engine failed: {self.message}"
        if self.phase is EnginePhase.READY:
            return "the engine is connecting"
        return f"the engine is {self.phase.value.replace('_', ' ')}"
