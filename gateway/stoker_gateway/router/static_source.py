"""StaticSource: replicas at fixed addresses, each ready while its /readyz says so."""

import asyncio
from collections.abc import Callable, Sequence

from stoker_gateway.router.fleet_view import Address, DeploymentView, EndpointView, FleetView
from stoker_gateway.router.replica_probe import READINESS_PATH, probe
from stoker_gateway.router.static_model import StaticModel

POLL_SECONDS = 0.5
NOT_READY_SECONDS = 0.1
"""Between two looks at one that is not ready: requests may wait for it."""

MAX_SILENCES = 3
"""Polls without an answer, in a row, after which a replica counts as not ready: one that is busy may miss one. A 503 counts at once."""


class StaticSource:
    """Of the same names the earlier model counts as the older one."""

    def __init__(self, models: Sequence[StaticModel]) -> None:
        self._models = [(model, model.addresses) for model in models]
        self._ready: dict[Address, bool] = {}

    async def run(self, on_view: Callable[[FleetView], None]) -> None:
        """As FleetSource says; the first view comes when every replica was asked once."""
        addresses = list(dict.fromkeys(address for _, of_model in self._models for address in of_model))
        answers = await asyncio.gather(*(probe(address, READINESS_PATH) for address in addresses))
        self._ready = {address: answer is not None and answer.status == 200 for address, answer in zip(addresses, answers, strict=True)}
        on_view(self._view())
        async with asyncio.TaskGroup() as group:
            for address in addresses:
                group.create_task(self._watch(address, on_view))
            await asyncio.Event().wait()

    async def _watch(self, address: Address, on_view: Callable[[FleetView], None]) -> None:
        num_silences = 0
        while True:
            await asyncio.sleep(POLL_SECONDS if self._ready[address] else NOT_READY_SECONDS)
            answer = await probe(address, READINESS_PATH)
            num_silences = num_silences + 1 if answer is None else 0
            is_ready = self._ready[address] and num_silences < MAX_SILENCES if answer is None else answer.status == 200
            if is_ready != self._ready[address]:
                self._ready[address] = is_ready
                on_view(self._view())

    def _view(self) -> FleetView:
        return tuple(
            DeploymentView(
                namespace=model.namespace,
                name=model.name,
                uid=f"{model.namespace}/{model.name}",
                created=index,
                served_names=(model.served_name or model.name, *model.aliases),
                replicas=len(addresses),
                traffic=model.traffic,
                endpoints=tuple(EndpointView(address, str(address), self._ready[address]) for address in addresses),
            )
            for index, (model, addresses) in enumerate(self._models)
        )
