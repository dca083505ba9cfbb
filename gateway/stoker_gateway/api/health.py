"""Probes. /livez: this process answers. /readyz and /health: requests would be served now. /startupz: how far the engine has come."""

from datetime import UTC, datetime, timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from stoker_engine.protocol import EnginePhase
from stoker_gateway.api.json_response import json_response
from stoker_gateway.api.state import ApiState

_encode = msgspec.json.Encoder().encode


class Health(msgspec.Struct, omit_defaults=True):
    """`reason` says what is missing."""

    status: str
    reason: str = ""


class StartupReport(msgspec.Struct):
    """`progress` is 0 to 1 within the phase, `since` when the phase began, `message` the engine's own words on a failure."""

    phase: str
    progress: float
    since: str
    seconds: float
    message: str


async def livez(_state: ApiState, _request: Request) -> Response:
    return json_response(_encode(Health("ok")))


async def readyz(state: ApiState, _request: Request) -> Response:
    reason = not_ready_reason(state)
    if reason is None:
        return json_response(_encode(Health("ok")))
    return json_response(_encode(Health("not ready", reason)), status=503)


async def startupz(state: ApiState, _request: Request) -> Response:
    status = state.engine.status
    report = StartupReport(
        phase="waiting_for_engine" if status.phase is None else status.phase.value,
        progress=status.progress,
        since=(datetime.now(UTC) - timedelta(seconds=status.seconds)).isoformat(timespec="seconds"),
        seconds=round(status.seconds, 3),
        message=status.message,
    )
    has_started = status.is_connected and status.phase in (EnginePhase.READY, EnginePhase.SLEEPING, EnginePhase.DRAINING)
    return json_response(_encode(report), status=200 if has_started else 503)


def not_ready_reason(state: ApiState) -> str | None:
    """Why a request would not be served now; None if it would."""
    if state.drain.is_draining:
        return "the api is draining"
    if not state.engine.is_ready:
        return state.engine_explanation
    beat = state.engine.status.heartbeat
    if beat is not None and max(beat.step_age, beat.loop_age) > state.hang_seconds:
        return f"the engine's step has been running for {max(beat.step_age, beat.loop_age):.0f} s"
    return None
