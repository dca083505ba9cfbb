import asyncio
import time

import pytest

from stoker_engine.core.pulse import MAX_GAP_SECONDS, EnginePulse
from stoker_engine.running_clock import RunningClock


class Monotonic:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def monotonic(monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    clock = Monotonic()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_a_clock_goes_with_the_time_while_it_is_ticked(monotonic: Monotonic) -> None:
    clock = RunningClock(MAX_GAP_SECONDS)
    began = clock.now()
    for _ in range(10):
        monotonic.seconds += 1
        clock.tick()
    monotonic.seconds += 0.5
    assert clock.now() - began == 10.5


def test_a_clock_stands_while_its_process_is_stopped(monotonic: Monotonic) -> None:
    clock = RunningClock(MAX_GAP_SECONDS)
    began = clock.now()
    monotonic.seconds += 3600
    assert clock.now() - began == MAX_GAP_SECONDS
    clock.tick()
    monotonic.seconds += 1
    assert clock.now() - began == MAX_GAP_SECONDS + 1


async def test_a_clock_ticks_by_itself_in_an_event_loop() -> None:
    clock = RunningClock(max_gap_seconds=0.02)
    ticking = asyncio.create_task(clock.run())
    began = clock.now()
    async with asyncio.timeout(30.0):
        while clock.now() - began < 3 * 0.02:
            await asyncio.sleep(0.001)
    ticking.cancel()


def test_neither_a_step_nor_the_loop_ages_while_the_process_is_stopped(monotonic: Monotonic) -> None:
    pulse = EnginePulse()
    pulse.turn()
    pulse.step_begins(1)
    monotonic.seconds += 3600
    pulse.clock.tick()
    beat = pulse.heartbeat()
    assert beat.step_age == beat.loop_age == MAX_GAP_SECONDS
