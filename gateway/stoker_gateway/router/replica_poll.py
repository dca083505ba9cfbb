"""ReplicaPoll: asks replicas something again and again, each on its own: one that is silent holds up no other."""

import asyncio
from collections.abc import Callable, Iterable

from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.replica_probe import ProbeAnswer, probe


class ReplicaPoll:
    """Every `seconds` those that are `due`, by the loop's clock; `heard` gets what they answer, None where they don't."""

    def __init__(self, path: str, seconds: float, due: Callable[[float], Iterable[Endpoint]], heard: Callable[[Endpoint, ProbeAnswer | None], None]) -> None:
        self._path = path
        self._seconds = seconds
        self._due = due
        self._heard = heard
        self._asking: set[Endpoint] = set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                for endpoint in self._due(loop.time()):
                    if endpoint not in self._asking:
                        self._asking.add(endpoint)
                        group.create_task(self._ask(endpoint))
                await asyncio.sleep(self._seconds)

    async def _ask(self, endpoint: Endpoint) -> None:
        try:
            self._heard(endpoint, await probe(endpoint.address, self._path))
        finally:
            self._asking.discard(endpoint)
