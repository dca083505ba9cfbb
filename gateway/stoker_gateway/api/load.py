"""GET /load: how busy this api is, from what it counts itself; the engine is not asked."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from stoker_gateway.api.state import ApiState
from stoker_gateway.http.json_response import json_response

_encode = msgspec.json.Encoder().encode


class Load(msgspec.Struct, rename="camel"):
    """`in_flight` counts HTTP requests; `running` and `waiting` count requests in the engine, of which one HTTP request may make several.

    `generation_tokens` counts from the start of the process: two looks give a rate. `server_load` is `in_flight` under the name that vLLM gives it.
    """

    in_flight: int
    running: int
    waiting: int
    draining: bool
    kv_cache_usage: float
    generation_tokens: int
    server_load: int = msgspec.field(name="server_load")


async def load(state: ApiState, _request: Request) -> Response:
    gauges = state.metrics.gauges(state.engine.status)
    num_in_flight = state.drain.num_in_flight
    body = Load(
        in_flight=num_in_flight,
        running=int(gauges.num_requests_running),
        waiting=int(gauges.num_requests_waiting),
        draining=state.drain.is_draining,
        kv_cache_usage=gauges.kv_cache_usage_ratio,
        generation_tokens=state.metrics.num_generation_tokens,
        server_load=num_in_flight,
    )
    return json_response(_encode(body))
