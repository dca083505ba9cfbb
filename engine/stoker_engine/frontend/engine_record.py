"""EngineRecord: what an engine has said of itself over the handshake link, and when."""

import time

from msgspec.structs import replace

from stoker_engine.frontend.engine_status import EngineStatus
from stoker_engine.protocol import EngineCoreReadyResponse, EnginePhase, Heartbeat, PhaseReport
from stoker_engine.running_clock import RunningClock

MAX_GAP_SECONDS = 0.5
"""An event loop that could not look at its sockets for longer has not heard their silence."""


class EngineRecord:
    """Keeps an engine's last words until the next one begins. `clock`, to be run by whoever listens, measures silence."""

    def __init__(self, hang_seconds: float) -> None:
        self._hang_seconds = hang_seconds
        self._status = EngineStatus(hang_seconds=hang_seconds)
        self._phase_since = time.monotonic()
        self.clock = RunningClock(MAX_GAP_SECONDS)
        self._last_heard = self._last_progress = self.clock.now()

    @property
    def phase_number(self) -> int:
        """Of the newest report."""
        return self._status.phase_number

    def status(self, *, is_connected: bool, is_given_up: bool) -> EngineStatus:
        return replace(
            self._status,
            is_connected=is_connected,
            is_given_up=is_given_up,
            seconds=time.monotonic() - self._phase_since,
            silence=self.clock.now() - self._last_heard,
            # By its heartbeats: while there are none, its silence counts, and a stop is not taken for a hang before its time.
            stall=max(0.0, self._last_heard - self._last_progress),
        )

    def begin(self) -> None:
        """An engine said hello."""
        self._status = EngineStatus(phase=EnginePhase.STARTING, hang_seconds=self._hang_seconds)
        self._phase_since = time.monotonic()
        self._last_heard = self._last_progress = self.clock.now()

    def refuse(self, reason: str) -> None:
        """An engine said hello that cannot be talked to."""
        self._status = EngineStatus(phase=EnginePhase.FAILED, message=reason, hang_seconds=self._hang_seconds)

    def heard(self, report: PhaseReport | EngineCoreReadyResponse | Heartbeat) -> None:
        """The engine that is connected reports."""
        self._last_heard = self.clock.now()
        self.take(report)

    def take(self, report: PhaseReport | EngineCoreReadyResponse | Heartbeat) -> None:
        match report:
            case PhaseReport():
                self._status = replace(
                    self._status,
                    phase=report.phase,
                    progress=report.progress,
                    message=report.message,
                    phase_number=report.number,
                    download=report.download,
                    start_seconds=report.start_seconds,
                )
                self._phase_since = time.monotonic() - report.seconds
            case EngineCoreReadyResponse():
                # An engine that sleeps says so before it says what it could do.
                phase = EnginePhase.SLEEPING if self._status.phase is EnginePhase.SLEEPING else EnginePhase.READY
                self._status = replace(self._status, phase=phase, progress=1.0, message="", ready=report)
                self._phase_since = time.monotonic()
            case Heartbeat():
                last = self._status.heartbeat
                if not report.num_requests or last is None or report.num_steps != last.num_steps:
                    self._last_progress = self.clock.now()
                self._status = replace(self._status, heartbeat=report)

    def last_words(self, report: PhaseReport) -> None:
        """Of an engine whose end was noticed first."""
        self._status = replace(self._status, phase=report.phase, message=report.message)

    def end(self, reason: str) -> None:
        """The engine is gone, for `reason` where it has not told a better one."""
        phase = self._status.phase if self._status.phase is EnginePhase.DRAINING else EnginePhase.FAILED
        self._status = replace(self._status, phase=phase, ready=None, heartbeat=None, message=self._status.message or reason)
        self._phase_since = time.monotonic()

    def give_up(self, reason: str) -> None:
        """The engine is given up, for `reason` whatever it has told."""
        self._status = replace(self._status, message=reason)
