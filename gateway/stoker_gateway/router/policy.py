"""What chooses a replica for a request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from stoker_gateway.router.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class RoutingKey:
    """What of a request its replica may depend on."""

    prompt: bytes = b""
    """The beginning of its prompt, of its messages as they came, bounded."""
    session: str = ""


class Policy(Protocol):
    """One for each model; it may remember what it has chosen. `endpoints` are those that may have the request, at least one, in the source's order."""

    def choose(self, endpoints: Sequence[Endpoint], key: RoutingKey, now: float) -> Endpoint: ...
