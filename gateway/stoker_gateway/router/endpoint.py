"""A replica as the gateway knows it: where it is, how busy it is, and whether it answers."""

from stoker_gateway.router.fleet_view import Address, EndpointView
from stoker_gateway.router.health_record import HealthRecord
from stoker_gateway.router.replica_load import ReplicaLoad

FEW_WAITING = 8
"""An engine has so many at hand for its next steps,"""

SHARE_WAITING = 4
"""or a quarter as many as run; what is more waits in the gateway, where it can still go elsewhere and keys share fairly."""


class Endpoint:
    """One replica, the same object as long as it has the same pod and address. Its pool and policies keep what they know by this object."""

    __slots__ = ("address", "health", "load", "num_in_flight", "view")

    def __init__(self, view: EndpointView) -> None:
        self.address: Address = view.address
        self.view = view
        self.num_in_flight = 0
        """Requests that this gateway has sent it and that have not ended."""
        self.load: ReplicaLoad | None = None
        """What it last told of itself; None before it has."""
        self.health = HealthRecord()

    @property
    def is_ready(self) -> bool:
        """Whether its source lets it have new requests."""
        return self.view.is_ready and not self.view.is_terminating

    def num_requests(self, now: float) -> int:
        """How busy it is: what this gateway has sent it, and what it told of others' requests where that is fresh."""
        return self.num_in_flight if self.load is None else self.num_in_flight + self.load.num_others(now)

    def is_full(self, now: float) -> bool:
        """By what it has told of itself, and what it has been sent since; one that has told nothing for a while is not."""
        load = self.load
        if load is None or load.waiting == 0 or not load.is_fresh(now):
            return False
        return self.num_requests(now) - load.running >= max(FEW_WAITING, load.running // SHARE_WAITING)
