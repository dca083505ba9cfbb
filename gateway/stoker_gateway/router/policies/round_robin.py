"""Each replica in turn."""

import random
from collections.abc import Sequence

from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.policy import RoutingKey


class RoundRobin:
    """Begins anywhere, so that several gateways don't walk in step."""

    def __init__(self) -> None:
        self._turn = random.randrange(1 << 16)

    def choose(self, endpoints: Sequence[Endpoint], key: RoutingKey, now: float) -> Endpoint:
        self._turn += 1
        return endpoints[self._turn % len(endpoints)]
