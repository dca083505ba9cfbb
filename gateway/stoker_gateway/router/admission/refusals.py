"""What a client is told that may not go on now."""

import math

from stoker_gateway.openai.errors import ApiError, unavailable


def over_budget(unit: str, wait: float) -> ApiError:
    """429: `unit` is what there are no more of for `wait` seconds."""
    seconds = max(1, math.ceil(wait))
    error = ApiError(
        f"This API key has used up its {unit} of this minute; try again in {seconds} s.", status=429, error_type="rate_limit_error", code="rate_limit_exceeded"
    )
    error.headers["Retry-After"] = str(seconds)
    return error


def too_many_waiting(model: str, max_requests: int) -> ApiError:
    waiting = f", and {max_requests} wait already" if max_requests else ""
    return unavailable(f"No replica of {model!r} can take the request now{waiting}; try again.", "queue_full")


def waited_too_long(model: str, seconds: float) -> ApiError:
    return unavailable(f"No replica of {model!r} could take the request within {seconds:g} s; try again.", "queue_timeout")
