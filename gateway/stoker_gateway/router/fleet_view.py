"""What a source of endpoints says at one moment: the InferenceDeployments, and where their replicas are. Immutable; a Fleet makes live objects of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from stoker_gateway.router.traffic import TrafficConfig


@dataclass(frozen=True, slots=True)
class Address:
    """Where a replica's api listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class EndpointView:
    """One replica. It gets new requests while it is ready; one that is terminating finishes what it has."""

    address: Address
    pod: str
    is_ready: bool
    is_terminating: bool = False


@dataclass(frozen=True, slots=True)
class DeploymentView:
    """An InferenceDeployment and the replicas that are known of it."""

    namespace: str
    name: str
    uid: str
    created: int
    """Seconds since the epoch."""
    served_names: tuple[str, ...]
    """The served name, then its aliases."""
    replicas: int
    """As many as are wanted."""
    traffic: TrafficConfig
    endpoints: tuple[EndpointView, ...]


FleetView = tuple[DeploymentView, ...]


class FleetSource(Protocol):
    """Where views come from: a cluster's API server, or a fixed list."""

    async def run(self, on_view: Callable[[FleetView], None]) -> None:
        """Calls `on_view` once everything is known, and again at each change; runs until it is cancelled, whatever fails."""
