"""Pause, sleep, wake and reset the engine over HTTP: for trusted networks, and only there with `--enable-engine-control`."""

from collections.abc import Awaitable
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from stoker_engine.errors import EngineGenerateError
from stoker_engine.protocol import PauseMode, SleepTag
from stoker_gateway.api.query import decode_query
from stoker_gateway.api.state import ApiState
from stoker_gateway.http.json_response import json_response
from stoker_gateway.openai.errors import conflict


class PauseQuery(msgspec.Struct, forbid_unknown_fields=True):
    mode: PauseMode = PauseMode.ABORT
    clear_cache: bool = True


class SleepQuery(msgspec.Struct, forbid_unknown_fields=True):
    level: Annotated[int, Meta(ge=0, le=2)] = 1
    mode: PauseMode = PauseMode.ABORT


class WakeUpQuery(msgspec.Struct, forbid_unknown_fields=True):
    tags: list[SleepTag] | None = None


class ResetQuery(msgspec.Struct, forbid_unknown_fields=True):
    reset_running_requests: bool = False


class IsSleeping(msgspec.Struct):
    is_sleeping: bool


class IsPaused(msgspec.Struct):
    is_paused: bool


async def pause(state: ApiState, request: Request) -> Response:
    """Answers when nothing is computed any more; 409 where somebody resumed meanwhile."""
    query = decode_query(request, PauseQuery)
    return await _done(state.engine.control.pause_generation(query.mode, clear_cache=query.clear_cache))


async def resume(state: ApiState, _request: Request) -> Response:
    """409 for an engine that sleeps."""
    return await _done(state.engine.control.resume_generation())


async def is_paused(state: ApiState, _request: Request) -> Response:
    return json_response(msgspec.json.encode(IsPaused(await state.engine.control.is_paused())))


async def sleep(state: ApiState, request: Request) -> Response:
    """Answers when the memory has been given back; 409 where somebody woke the engine meanwhile."""
    query = decode_query(request, SleepQuery)
    was_asleep = state.engine.status.is_sleeping
    response = await _done(state.engine.control.sleep(query.level, query.mode))
    if not was_asleep:
        state.metrics.fell_asleep(query.level)
    return response


async def wake_up(state: ApiState, request: Request) -> Response:
    """`tags` may be given more than once. 500, and the engine sleeps on, where its weights cannot be loaded."""
    query = decode_query(request, WakeUpQuery, lists=("tags",))
    await state.engine.control.wake_up(query.tags)
    return json_response(b"{}")


async def is_sleeping(state: ApiState, _request: Request) -> Response:
    return json_response(msgspec.json.encode(IsSleeping(await state.engine.control.is_sleeping())))


async def reset_prefix_cache(state: ApiState, request: Request) -> Response:
    """409, and nothing changed, while requests use blocks of it."""
    query = decode_query(request, ResetQuery)
    if not await state.engine.control.reset_prefix_cache(reset_running_requests=query.reset_running_requests):
        raise conflict("The prefix cache is in use; try again, or with reset_running_requests=true.", "prefix_cache_in_use")
    return json_response(b"{}")


async def start_profile(state: ApiState, _request: Request) -> Response:
    """409 where the engine was started without a directory for profiles."""
    return await _done(state.engine.control.start_profile())


async def stop_profile(state: ApiState, _request: Request) -> Response:
    return await _done(state.engine.control.stop_profile())


ENGINE_CONTROL_ROUTES = (
    ("POST", "/pause", pause),
    ("POST", "/resume", resume),
    ("GET", "/is_paused", is_paused),
    ("POST", "/sleep", sleep),
    ("POST", "/wake_up", wake_up),
    ("GET", "/is_sleeping", is_sleeping),
    ("POST", "/reset_prefix_cache", reset_prefix_cache),
    ("POST", "/start_profile", start_profile),
    ("POST", "/stop_profile", stop_profile),
)


async def _done(call: Awaitable[None]) -> Response:
    try:
        await call
    except EngineGenerateError as error:
        raise conflict(str(error), "engine_refused") from error
    return json_response(b"{}")
