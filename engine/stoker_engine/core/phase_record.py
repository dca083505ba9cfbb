"""PhaseRecord: the engine's phase, and how long the phases of its start took."""

import logging
import time

import msgspec

from stoker_engine.protocol import EnginePhase, ModelDownload, PhaseReport
from stoker_engine.startup_report import STARTED

logger = logging.getLogger(__name__)


class PhaseRecord:
    """Written by one thread at a time, read by any."""

    def __init__(self) -> None:
        self._report = PhaseReport(EnginePhase.STARTING)
        self._since = time.monotonic()

    @property
    def phase(self) -> EnginePhase:
        return self._report.phase

    @property
    def report(self) -> PhaseReport:
        """The phase, with how long it has lasted."""
        return msgspec.structs.replace(self._report, seconds=time.monotonic() - self._since)

    def set(self, phase: EnginePhase, progress: float, download: ModelDownload | None = None, message: str = "") -> None:
        """What was downloaded is told with every later phase."""
        last = self._report
        number, start_seconds = last.number, last.start_seconds
        if phase is not last.phase:
            start_seconds = self._with_ended_phase()
            self._since = time.monotonic()
            number += 1
            logger.info("phase: %s", phase.value)
        self._report = PhaseReport(phase, progress, message=message, number=number, download=download or last.download, start_seconds=start_seconds)

    def fail(self, message: str) -> None:
        self._since = time.monotonic()
        self._report = msgspec.structs.replace(self._report, phase=EnginePhase.FAILED, progress=0.0, message=message, number=self._report.number + 1)

    def _with_ended_phase(self) -> dict[str, float]:
        """What comes after the start, as a wake-up that loads weights again, is no part of it."""
        ended, start_seconds = self._report.phase, self._report.start_seconds
        if ended in STARTED or ended.value in start_seconds:
            return start_seconds
        return {**start_seconds, ended.value: round(time.monotonic() - self._since, 3)}
