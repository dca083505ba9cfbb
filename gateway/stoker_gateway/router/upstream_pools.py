"""UpstreamPools: one pool for each endpoint, as long as the fleet has it."""

from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.fleet import FleetChange
from stoker_gateway.router.upstream_pool import UpstreamPool


class UpstreamPools:
    """Lives on one event loop."""

    def __init__(self) -> None:
        self._pools: dict[Endpoint, UpstreamPool] = {}

    def of(self, endpoint: Endpoint) -> UpstreamPool:
        """Only of an endpoint that the fleet has."""
        pool = self._pools.get(endpoint)
        if pool is None:
            pool = self._pools[endpoint] = UpstreamPool(endpoint.address)
        return pool

    def forget(self, change: FleetChange) -> None:
        """The idle connections to endpoints that are gone."""
        for endpoint in change.endpoints:
            pool = self._pools.pop(endpoint, None)
            if pool is not None:
                pool.close()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
