"""StartupReport: what /startupz says, of the engine itself and of the api alike."""

from datetime import UTC, datetime, timedelta

import msgspec

from stoker_engine.protocol import EnginePhase

STARTED = frozenset({EnginePhase.READY, EnginePhase.DRAINING, EnginePhase.SLEEPING})
"""The phases that follow a start."""


class StartupReport(msgspec.Struct):
    """`progress` is 0 to 1 within the phase, `since` when the phase began, `message` the engine's words on a failure."""

    phase: str
    progress: float
    since: str
    seconds: float
    message: str


def report_startup(phase: str, progress: float, seconds: float, message: str) -> StartupReport:
    """seconds: how long the phase has lasted."""
    since = datetime.now(UTC) - timedelta(seconds=seconds)
    return StartupReport(phase, progress, since.isoformat(timespec="seconds"), round(seconds, 3), message)
