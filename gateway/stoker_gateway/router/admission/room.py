"""Whether a replica can take one more request."""

from stoker_gateway.router.served_model import ServedModel


def num_serving(model: ServedModel, now: float) -> int:
    """Replicas that get requests now."""
    return len(model.serving(now))


def has_room(model: ServedModel, now: float) -> bool:
    return any(not endpoint.is_full(now) for endpoint in model.serving(now))
