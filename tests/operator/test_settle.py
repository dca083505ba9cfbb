import asyncio

import pytest

from stoker_operator.settle import settle


async def test_an_error_is_raised_only_when_every_call_has_ended():
    ended = []

    async def fail() -> None:
        raise ValueError("first")

    async def go_on() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ended.append(True)

    with pytest.raises(ValueError, match="first"):
        await settle([fail(), go_on()])
    assert ended == [True]


async def test_results_are_in_the_order_of_the_calls():
    async def later(value: int, turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return value

    assert await settle([later(1, 5), later(2, 1)]) == [1, 2]
