"""What replicas tell of their load: those of models with traffic, about once a second."""

import asyncio
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.replica_load import ReplicaLoad, tokens_per_second
from stoker_gateway.router.replica_poll import ReplicaPoll
from stoker_gateway.router.replica_probe import ProbeAnswer
from stoker_gateway.router.served_model import ServedModel

POLL_SECONDS = 1.0
LOAD_PATH = "/load"

ACTIVE_SECONDS = 10.0
"""So long after its last request a model counts as having traffic."""

MAX_POLLS = 100
"""In one round, those first that were asked longest ago: asking may not become what the gateway is busy with."""

Count = Annotated[int, Meta(ge=0, le=1 << 53)]


class _Load(msgspec.Struct, rename="camel"):
    """The part of /load that is of use here."""

    running: Count
    waiting: Count
    kv_cache_usage: float = 0.0
    generation_tokens: Count | None = None


_decode = msgspec.json.Decoder(_Load).decode


class LoadPoll:
    """Sets `Endpoint.load`. An answer that cannot be read is none: the last one grows old."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._active: dict[ServedModel, float] = {}
        """When each model last had a request in flight."""
        self._asked: dict[Endpoint, float] = {}

    async def run(self) -> None:
        """For ever."""
        await ReplicaPoll(LOAD_PATH, POLL_SECONDS, self._due, _heard).run()

    def _due(self, now: float) -> list[Endpoint]:
        due = sorted(self._worth_asking(now), key=lambda endpoint: self._asked.get(endpoint, 0.0))
        known = {endpoint: self._asked.get(endpoint, 0.0) for endpoint in due}
        self._asked = known | dict.fromkeys(due[:MAX_POLLS], now)
        return due[:MAX_POLLS]

    def _worth_asking(self, now: float) -> Iterator[Endpoint]:
        active: dict[ServedModel, float] = {}
        for model in self._fleet.models:
            if any(endpoint.num_in_flight for endpoint in model.endpoints):
                active[model] = now
            elif now - self._active.get(model, -ACTIVE_SECONDS) < ACTIVE_SECONDS:
                active[model] = self._active[model]
            if model in active:
                yield from (endpoint for endpoint in model.endpoints if endpoint.is_ready and not endpoint.health.is_ejected(now))
        self._active = active


def _heard(endpoint: Endpoint, answer: ProbeAnswer | None) -> None:
    if answer is None or answer.status != 200:
        return
    try:
        told = _decode(answer.body)
    except msgspec.MsgspecError:
        return
    now = asyncio.get_running_loop().time()
    rate = tokens_per_second(endpoint.load, now, told.generation_tokens)
    endpoint.load = ReplicaLoad(now, told.running, told.waiting, told.kv_cache_usage, told.generation_tokens, rate, endpoint.num_in_flight)
