"""The same replica for each session."""

from collections.abc import Sequence

from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.policies.least_request import LeastRequest
from stoker_gateway.router.policies.rendezvous import first_of
from stoker_gateway.router.policy import RoutingKey


class SessionHash:
    """A request that names no session goes where there is least to do."""

    def __init__(self) -> None:
        self._without_session = LeastRequest()

    def choose(self, endpoints: Sequence[Endpoint], key: RoutingKey, now: float) -> Endpoint:
        if not key.session:
            return self._without_session.choose(endpoints, key, now)
        return first_of(endpoints, key.session.encode())
