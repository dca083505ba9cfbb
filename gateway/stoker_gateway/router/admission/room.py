"""Whether a replica can take one more request."""

from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.served_model import ServedModel

FEW_WAITING = 8
"""An engine has so many at hand for its next steps,"""

SHARE_WAITING = 4
"""or a quarter as many as run; what is more waits here, where it can still go elsewhere and keys share fairly."""


def num_ready(model: ServedModel) -> int:
    return sum(endpoint.is_ready for endpoint in model.endpoints)


def has_room(model: ServedModel, now: float) -> bool:
    return any(endpoint.is_ready and not is_full(endpoint, now) for endpoint in model.endpoints)


def is_full(endpoint: Endpoint, now: float) -> bool:
    """By what it has told of itself, and what it has been sent since; one that has told nothing for a while is not."""
    load = endpoint.load
    if load is None or load.waiting == 0 or not load.is_fresh(now):
        return False
    return endpoint.num_requests(now) - load.running >= max(FEW_WAITING, load.running // SHARE_WAITING)
