"""StartupReport: what /startupz says, of the engine itself and of the api alike."""

from datetime import UTC, datetime, timedelta

import msgspec

from stoker_engine.protocol import EnginePhase, PhaseReport

STARTED = frozenset({EnginePhase.READY, EnginePhase.DRAINING, EnginePhase.SLEEPING})
"""The phases that follow a start."""


class StartupReport(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """`progress` is 0 to 1 within the phase, `since` when the phase began, `message` the engine's words on a failure, or what it waits for. `start_seconds`
    says how long each phase of the start took that is over.

    Of an hf:// model: `revision` is the commit, `size_bytes` that of the files that the engine needs, `bytes` what of them the cache holds; the rate is an
    average over the last seconds, and `eta_seconds` what the rest takes at it.
    """

    phase: str
    progress: float
    since: str
    seconds: float
    message: str
    revision: str | None = None
    size_bytes: int | None = None
    bytes: int | None = None
    bytes_per_second: int | None = None
    eta_seconds: int | None = None
    start_seconds: dict[str, float] = {}


def report_startup(phase: str, report: PhaseReport) -> StartupReport:
    """`phase` stands for the report's own, which there is none of before an engine says hello."""
    since = datetime.now(UTC) - timedelta(seconds=report.seconds)
    startup = StartupReport(
        phase=phase,
        progress=report.progress,
        since=since.isoformat(timespec="seconds"),
        seconds=round(report.seconds, 3),
        message=report.message,
        start_seconds=report.start_seconds,
    )
    download = report.download
    if download is not None and download.revision:
        startup.revision, startup.size_bytes, startup.bytes = download.revision, download.size_bytes, download.bytes
        startup.bytes_per_second, startup.eta_seconds = _whole(download.bytes_per_second), _whole(download.eta_seconds)
    return startup


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
