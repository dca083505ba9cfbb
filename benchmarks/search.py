"""Searches the highest rate that something sustains."""

from collections.abc import Callable

STEP = 1.25
"""How far the search goes at once until it has seen both a rate that is sustained and one that is not."""
MAX_STEPS = 12
PRECISION = 1.025


def highest_sustained(is_sustained: Callable[[float], bool], estimate: float) -> float:
    """A rate that was tried and sustained, where one that is higher by a fortieth or less was tried and was not. Raises RuntimeError where MAX_STEPS
    from the estimate do not reach one of both."""
    low, high = _both_ends(is_sustained, estimate)
    while high / low > PRECISION:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if is_sustained(middle) else (low, middle)
    return low


def _both_ends(is_sustained: Callable[[float], bool], estimate: float) -> tuple[float, float]:
    """A sustained rate and one that is not, neighbors in steps from the estimate."""
    goes_up, rate = is_sustained(estimate), estimate
    for _ in range(MAX_STEPS):
        following = rate * STEP if goes_up else rate / STEP
        if is_sustained(following) != goes_up:
            return min(rate, following), max(rate, following)
        rate = following
    raise RuntimeError(f"from {estimate:,.0f} to {rate:,.0f}, {'every' if goes_up else 'no'} rate is sustained")
