import threading
import time
from collections.abc import Iterator

import pytest

from stoker_engine.core.pulse import EnginePulse
from stoker_engine.core.watchdog import HangWatch, StartupDeadline, process_age

LIMIT = 0.4


class Hangs:
    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.came = threading.Event()

    def __call__(self, reason: str) -> None:
        self.reasons.append(reason)
        self.came.set()


@pytest.fixture
def pulse() -> EnginePulse:
    return EnginePulse()


@pytest.fixture
def hangs(pulse: EnginePulse) -> Iterator[Hangs]:
    hangs = Hangs()
    watch = HangWatch(pulse, LIMIT, hangs)
    yield hangs
    watch.stop()


@pytest.mark.case("C067")
def test_a_step_that_does_not_end_is_told(pulse: EnginePulse, hangs: Hangs) -> None:
    pulse.turn()
    pulse.step_begins(1)
    assert hangs.came.wait(10)
    assert hangs.reasons[0].startswith("a step has been running for")


def test_a_loop_that_does_not_turn_is_told(pulse: EnginePulse, hangs: Hangs) -> None:
    pulse.turn()
    assert hangs.came.wait(10)
    assert hangs.reasons[0].startswith("the loop has not turned for")


@pytest.mark.fault("B7")
def test_a_loop_that_turns_without_computing_its_work_is_told(pulse: EnginePulse, hangs: Hangs) -> None:
    deadline = time.monotonic() + 10
    while not hangs.came.wait(0.01):
        assert time.monotonic() < deadline
        pulse.turn()
        pulse.step_begins(3)
        pulse.step_ended(3)
    assert hangs.reasons[0].startswith("3 requests have waited and nothing was computed for")


def test_a_loop_that_computes_or_waits_for_input_is_left_alone(pulse: EnginePulse, hangs: Hangs) -> None:
    for _ in range(100):
        pulse.turn()
        pulse.step_begins(3)
        pulse.step_ended(3)
        pulse.computed()
        assert not hangs.came.wait(0.01)
    pulse.idle()
    assert not hangs.came.wait(3 * LIMIT)


@pytest.mark.fault("A3")
def test_the_start_up_deadline_counts_from_the_start_of_the_process() -> None:
    expired = threading.Event()
    StartupDeadline(process_age(), expired.set)
    assert expired.wait(10)
    met = StartupDeadline(process_age() + 0.5, expired.clear)
    met.met()
    assert expired.is_set()


def test_a_process_is_older_than_what_it_measures() -> None:
    age = process_age()
    assert 0 < age < 24 * 3600
    assert process_age() >= age
