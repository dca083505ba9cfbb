"""Waiting for a condition, with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

INTERVAL = 0.1


def wait_until(condition: Callable[[], T], timeout: float, what: str) -> T:
    """The condition's first value that is true in Python's sense, asked ten times a second.

    Raises TimeoutError with `what` after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true within {timeout:g} s: {what}")
        time.sleep(INTERVAL)
    return value
