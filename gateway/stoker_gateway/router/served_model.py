"""A model as the gateway serves it: its names, its replicas, its policy."""

from collections.abc import Collection

from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.fleet_view import DeploymentView
from stoker_gateway.router.policies import make_policy
from stoker_gateway.router.policy import RoutingKey


class ServedModel:
    """One InferenceDeployment, the same object as long as it has the same uid."""

    def __init__(self, view: DeploymentView) -> None:
        self.view = view
        self.endpoints: list[Endpoint] = []
        self._policy = make_policy(view.traffic)

    def choose(self, key: RoutingKey, tried: Collection[Endpoint], now: float) -> Endpoint | None:
        """The replica for a request that `tried` have not answered; None where no other may have it."""
        ready = [endpoint for endpoint in self.endpoints if endpoint.is_ready and endpoint not in tried]
        # Where all are ejected, one that may answer is better than none.
        candidates = [endpoint for endpoint in ready if not endpoint.health.is_ejected(now)] or ready
        return self._policy.choose(candidates, key, now) if candidates else None
