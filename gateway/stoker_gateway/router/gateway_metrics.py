"""The gateway's metrics (`stoker_gateway_…`): counted as requests end; what goes up and down is read off the fleet when the page is asked for."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

from stoker_gateway.router.access_log import QUIET_ROUTES
from stoker_gateway.router.admission.admission import Admission
from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.fleet import Fleet, FleetChange
from stoker_gateway.router.metrics_page import ModelNow, Snapshot, write_page
from stoker_gateway.router.model_counts import OTHER, ModelCounts
from stoker_gateway.router.routed_request import RoutedRequest
from stoker_gateway.router.served_model import ServedModel

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

MODELS_PER_TURN = 64
"""Of the event loop."""

REST_FACTOR = 4.0
"""So many times as long as it took to make, a page is the answer to all who ask: making pages takes a fifth of the time at most."""

_T = TypeVar("_T")


class GatewayMetrics:
    """`observe` is an Observer; `render` writes the page."""

    def __init__(self, fleet: Fleet, admission: Admission) -> None:
        self._by_model: dict[str, ModelCounts] = defaultdict(ModelCounts)
        self._by_key: dict[str, tuple[int, int]] = {}
        self._fleet = fleet
        self._admission = admission
        self._page: asyncio.Task[bytes] | None = None
        self._good_until = 0.0

    def observe(self, record: RoutedRequest) -> None:
        if record.route in QUIET_ROUTES:
            return
        self._by_model[record.model or OTHER].observe(record)
        if record.key_name:
            requests, tokens = self._by_key.get(record.key_name, (0, 0))
            self._by_key[record.key_name] = requests + 1, tokens + record.num_tokens

    def on_fleet_change(self, change: FleetChange) -> None:
        """Models that are gone take their series with them: they come and go for years."""
        if change.models:
            self._forget()

    def _forget(self) -> None:
        """Also models that have another name now, and keys that have gone."""
        names = {OTHER, *(model.names[0] for model in self._fleet.models)}
        for name in [known for known in self._by_model if known not in names]:
            del self._by_model[name]
        for name in self._by_key.keys() - self._admission.key_names:
            del self._by_key[name]

    async def render(self) -> bytes:
        """One page for all who ask meanwhile; who leaves takes it from nobody else."""
        if self._page is None or (self._page.done() and asyncio.get_running_loop().time() >= self._good_until):
            self._page = asyncio.create_task(self._make())
        return await asyncio.shield(self._page)

    async def _make(self) -> bytes:
        """Written in a thread: with thousands of models that takes a second."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            return await asyncio.to_thread(write_page, await self._snapshot())
        finally:
            self._good_until = loop.time() + REST_FACTOR * (loop.time() - started)

    async def _snapshot(self) -> Snapshot:
        self._forget()
        return Snapshot(
            counts=[(name, counts.copy()) async for name, counts in _in_turns(self._by_model.items())],
            keys=dict(self._by_key),
            models=[self._now(model) async for model in _in_turns(self._fleet.models)],
            num_key_faults=len(self._admission.key_faults),
            is_synced=self._fleet.is_synced,
        )

    def _now(self, model: ServedModel) -> ModelNow:
        now = asyncio.get_running_loop().time()
        states = dict.fromkeys(("ready", "ejected", "not_ready"), 0)
        for endpoint in model.endpoints:
            states[_state(endpoint, now)] += 1
        in_flight = [(str(endpoint.address), endpoint.num_in_flight) for endpoint in model.endpoints]
        return ModelNow(model.names[0], self._admission.num_waiting(model), states, in_flight)


async def _in_turns(items: Iterable[_T]) -> AsyncIterator[_T]:
    """Others have their turn in between: a look at thousands takes a while, too."""
    for index, item in enumerate(list(items), start=1):
        yield item
        if index % MODELS_PER_TURN == 0:
            await asyncio.sleep(0)


def _state(endpoint: Endpoint, now: float) -> str:
    if not endpoint.is_ready:
        return "not_ready"
    return "ejected" if endpoint.health.is_ejected(now) else "ready"
