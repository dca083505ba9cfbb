"""Probes. /livez: this process answers. /readyz and /health: requests would be served now. /startupz: how far the engine has come."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from stoker_engine.frontend.engine_status import EngineStatus
from stoker_engine.startup_report import STARTED, report_startup
from stoker_gateway.api.state import ApiState
from stoker_gateway.http.json_response import json_response

_encode = msgspec.json.Encoder().encode


class Health(msgspec.Struct, omit_defaults=True):
    """`engine` is the engine's state, `reason` says what is missing."""

    status: str
    engine: str = ""
    reason: str = ""


async def livez(_state: ApiState, _request: Request) -> Response:
    return json_response(_encode(Health("ok")))


async def readyz(state: ApiState, _request: Request) -> Response:
    status = state.engine.status
    reason = _not_ready_reason(state, status)
    if reason is None:
        return json_response(_encode(Health("ok", status.state)))
    return json_response(_encode(Health("not ready", status.state, reason)), status=503)


async def startupz(state: ApiState, _request: Request) -> Response:
    status = state.engine.status
    phase = "waiting_for_engine" if status.phase is None else status.phase.value
    report = report_startup(phase, status.phase_report)
    has_started = status.is_connected and status.phase in STARTED
    return json_response(_encode(report), status=200 if has_started else 503)


def _not_ready_reason(state: ApiState, status: EngineStatus) -> str | None:
    """Why a request would not be served now; None if it would."""
    if state.drain.is_draining:
        return "the api is draining"
    return None if state.engine.is_linked and status.is_ready else status.explanation
