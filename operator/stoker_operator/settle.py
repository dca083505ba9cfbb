"""Several calls at once, none of which is left under way."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


async def settle(calls: Iterable[Coroutine[Any, Any, ResultT]]) -> list[ResultT]:
    """All results, in order. Raises the first error, but only when every call has ended: a caller that tries again must not meet itself."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    results = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        results.append(outcome)
    return results
