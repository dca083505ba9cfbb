"""EngineStatus: what an api knows of its engine, for health, tables and error messages."""

import enum

import msgspec

from stoker_engine.protocol import HEARTBEAT_SECONDS, UNRESPONSIVE_SECONDS, EngineCoreReadyResponse, EnginePhase, Heartbeat, ModelDownload, PhaseReport

BUSY_SECONDS = 1.0
"""A loop that has not turned for this long is busy with one step."""


class EngineState(enum.StrEnum):
    """How an engine is. An engine in READY and BUSY serves."""

    ABSENT = "absent"
    """None has said hello yet."""
    LOADING = "loading"
    """In a phase before READY: perhaps it still downloads."""
    READY = "ready"
    BUSY = "busy"
    """Heartbeats come, and the loop has been in one step for a while."""
    UNRESPONSIVE = "unresponsive"
    """No heartbeat for UNRESPONSIVE_SECONDS."""
    HUNG = "hung"
    """No heartbeat, or no step computed of the work there is, for engineHangTimeout: it is given up."""
    SLEEPING = "sleeping"
    DRAINING = "draining"
    FAILED = "failed"
    """It has said its last words."""
    DEAD = "dead"
    """Its connection is closed."""


_BY_PHASE = {EnginePhase.DRAINING: EngineState.DRAINING, EnginePhase.SLEEPING: EngineState.SLEEPING, EnginePhase.FAILED: EngineState.FAILED}


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A struct, as one is made at each look, several for a request: that takes 0.6 µs.

    `phase` None: no engine has said hello yet. Seconds: `seconds` the phase has lasted, `silence` nothing was heard of the engine, `stall` it has had
    work and computed nothing, `hang_seconds` either may last.

    After an engine's end `is_connected` is False and `phase` and `message` keep its last words until the next one says hello. One that is given up is
    neither connected nor gone: `is_given_up`.
    """

    phase: EnginePhase | None = None
    progress: float = 0.0
    seconds: float = 0.0
    message: str = ""
    phase_number: int = 0
    is_connected: bool = False
    is_given_up: bool = False
    silence: float = 0.0
    stall: float = 0.0
    hang_seconds: float = float("inf")
    ready: EngineCoreReadyResponse | None = None
    heartbeat: Heartbeat | None = None
    download: ModelDownload | None = None
    start_seconds: dict[str, float] = {}

    @property
    def state(self) -> EngineState:
        if self.phase is None:
            return EngineState.ABSENT
        if self.is_given_up:
            return EngineState.HUNG
        if not self.is_connected:
            return EngineState.DEAD
        if self.hang_reason is not None:
            return EngineState.HUNG
        if self.silence > UNRESPONSIVE_SECONDS:
            return EngineState.UNRESPONSIVE
        if self.phase is EnginePhase.READY:
            return EngineState.BUSY if self._step_seconds > BUSY_SECONDS else EngineState.READY
        return _BY_PHASE.get(self.phase, EngineState.LOADING)

    @property
    def hang_reason(self) -> str | None:
        """Why it counts as hung; None if it does not. What is measured here began up to one heartbeat before it was noticed."""
        if self.silence > self.hang_seconds + HEARTBEAT_SECONDS:
            return f"it has not been heard of for {self.silence:.0f} s"
        if self._step_seconds > self.hang_seconds:
            return f"its step has been running for {self._step_seconds:.0f} s"
        if self.stall > self.hang_seconds + HEARTBEAT_SECONDS:
            return f"it has computed nothing of its work for {self.stall:.0f} s"
        return None

    @property
    def is_ready(self) -> bool:
        """It serves."""
        return self.ready is not None and self.state in (EngineState.READY, EngineState.BUSY)

    @property
    def is_sleeping(self) -> bool:
        return self.state is EngineState.SLEEPING

    @property
    def takes_calls(self) -> bool:
        """Its methods may be called: it serves, or would if it were not asleep."""
        return self.is_ready or (self.ready is not None and self.is_sleeping)

    @property
    def is_draining(self) -> bool:
        return self.phase is EnginePhase.DRAINING

    @property
    def explanation(self) -> str:
        """Why it does not serve, for an error message."""
        words = f": {self.message}" if self.message else ""
        match self.state:
            case EngineState.ABSENT:
                return "no engine has connected yet"
            case EngineState.DEAD:
                return f"the engine is gone{words}"
            case EngineState.FAILED:
                return f"the engine failed{words}"
            case EngineState.HUNG:
                return f"the engine is hung: {self.message if self.is_given_up else self.hang_reason}"
            case EngineState.UNRESPONSIVE:
                return f"the engine is unresponsive: it has not been heard of for {self.silence:.0f} s"
            case EngineState.LOADING if self.phase is not None:
                return f"the engine is {self.phase.value.replace('_', ' ')}{words}"
            case EngineState.READY | EngineState.BUSY:
                return "the engine is connecting"
            case state:
                return f"the engine is {state.value}"

    @property
    def summary(self) -> str:
        """Where it is, and for how long: for whoever has waited for it in vain."""
        if self.phase is None:
            return "no engine has said hello"
        phase = f"in phase {self.phase.value} ({self.progress:.0%}) for {self.seconds:.0f} s"
        return f"the engine is {self.state.value}, {phase}, last heard of {self.silence:.1f} s ago" + (f": {self.message}" if self.message else "")

    @property
    def phase_report(self) -> PhaseReport:
        """What the engine has told of its phase; STARTING before it has told anything."""
        phase = self.phase or EnginePhase.STARTING
        return PhaseReport(phase, self.progress, self.seconds, self.message, self.phase_number, self.download, self.start_seconds)

    @property
    def _step_seconds(self) -> float:
        return 0.0 if self.heartbeat is None else max(self.heartbeat.step_age, self.heartbeat.loop_age)
