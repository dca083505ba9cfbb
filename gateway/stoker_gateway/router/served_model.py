"""A model as the gateway serves it: its names, its replicas, its policy."""

from collections.abc import Collection

from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.fleet_view import Address, DeploymentView, EndpointView
from stoker_gateway.router.policies import make_policy
from stoker_gateway.router.policy import RoutingKey


class ServedModel:
    """One InferenceDeployment, the same object as long as it has the same uid."""

    def __init__(self, view: DeploymentView) -> None:
        self.view = view
        self.endpoints: list[Endpoint] = []
        self.names: tuple[str, ...] = ()
        """Those that it is listed under: of the names it claims, the ones it has; its full name where it has none of them, or not its first."""
        self.names_taken: tuple[tuple[str, str], ...] = ()
        """The names it claims and has not, each with the full name of the InferenceDeployment that has it."""
        self._policy = make_policy(view.traffic)
        self.update(view)

    def update(self, view: DeploymentView) -> list[Endpoint]:
        """Takes over what is known now; the endpoints that are no longer its own."""
        if _balancing(view) != _balancing(self.view):
            self._policy = make_policy(view.traffic)
        self.view = view
        kept = {_place(endpoint.view): endpoint for endpoint in self.endpoints}
        wanted = {_place(found): found for found in view.endpoints}
        self.endpoints = [_updated(kept.get(place), found) for place, found in wanted.items()]
        return [endpoint for place, endpoint in kept.items() if place not in wanted]

    def choose(self, key: RoutingKey, tried: Collection[Endpoint], now: float) -> Endpoint | None:
        """The replica for a request that `tried` have not answered; None where no other may have it. One that is full only where all are."""
        serving = self.serving(now, tried)
        candidates = [endpoint for endpoint in serving if not endpoint.is_full(now)] or serving
        return self._policy.choose(candidates, key, now) if candidates else None

    def serving(self, now: float, tried: Collection[Endpoint] = ()) -> list[Endpoint]:
        """Those that get requests now: the ready ones that are not ejected. Where all are, one that may answer is better than none."""
        ready = [endpoint for endpoint in self.endpoints if endpoint.is_ready and endpoint not in tried]
        return [endpoint for endpoint in ready if not endpoint.health.is_ejected(now)] or ready


def _place(view: EndpointView) -> tuple[str, Address]:
    """A pod that moved to another port is another endpoint, and so is another pod at an address that was used before."""
    return view.pod, view.address


def _updated(endpoint: Endpoint | None, view: EndpointView) -> Endpoint:
    if endpoint is None:
        return Endpoint(view)
    endpoint.view = view
    return endpoint


def _balancing(view: DeploymentView) -> tuple[str, str | None]:
    """What the policy is made of; it forgets what it remembers only where this changes."""
    return view.traffic.load_balancing, view.traffic.session_header
