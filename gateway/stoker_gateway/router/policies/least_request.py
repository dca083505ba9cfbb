"""The less busy of two replicas drawn at random."""

from collections.abc import Sequence
from random import random

from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.policy import RoutingKey


class LeastRequest:
    """Power of two choices: nearly as even as the least busy of all, and gateways that count alike don't all run to the same one."""

    def choose(self, endpoints: Sequence[Endpoint], key: RoutingKey, now: float) -> Endpoint:
        if len(endpoints) == 1:
            return endpoints[0]
        index = int(random() * len(endpoints))
        distance = 1 + int(random() * (len(endpoints) - 1))
        first, second = endpoints[index], endpoints[index - distance]
        return second if second.num_requests(now) < first.num_requests(now) else first
