import asyncio

import pytest

from stoker_engine.frontend import listening_clock
from stoker_engine.frontend.listening_clock import TICK_SECONDS, ListeningClock


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(listening_clock, "time", time)
    return time


def test_it_runs_with_a_loop_that_turns(time: Time) -> None:
    clock = ListeningClock()
    began = clock.now()
    for _ in range(40):
        time.now += TICK_SECONDS * 1.5
        clock.tick()
    time.now += TICK_SECONDS
    assert clock.now() - began == pytest.approx(61 * TICK_SECONDS)


def test_it_stands_while_the_loop_does(time: Time) -> None:
    clock = ListeningClock()
    began = clock.now()
    time.now += 60.0
    assert clock.now() - began == pytest.approx(2 * TICK_SECONDS)
    clock.tick()
    assert clock.now() - began == pytest.approx(2 * TICK_SECONDS)
    time.now += TICK_SECONDS
    assert clock.now() - began == pytest.approx(3 * TICK_SECONDS)


async def test_it_ticks_by_itself() -> None:
    clock = ListeningClock()
    ticking = asyncio.create_task(clock.run())
    began = clock.now()
    async with asyncio.timeout(30.0):
        while clock.now() - began < 3 * TICK_SECONDS:
            await asyncio.sleep(0.01)
    ticking.cancel()
