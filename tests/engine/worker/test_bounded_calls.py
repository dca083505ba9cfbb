import hashlib
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from stoker_engine.errors import EngineBusyError
from stoker_engine.worker.bounded_calls import MAX_OVERDUE, MAX_OVERDUE_OF_ALL, BoundedCalls, OverdueError

WAIT_SECONDS = 60.0
SHORT_SECONDS = 0.002


@pytest.fixture
def calls() -> Iterator[BoundedCalls]:
    made = BoundedCalls()
    yield made
    made.close()


@pytest.fixture
def end() -> Iterator[threading.Event]:
    made = threading.Event()
    yield made
    made.set()


def work_until(end: threading.Event) -> None:
    """CPU time, nearly all of it without the GIL."""
    while not end.is_set():
        hashlib.pbkdf2_hmac("sha512", b"a", b"b", 5000)


def leave(calls: BoundedCalls, end: threading.Event, number: int) -> None:
    for _ in range(number):
        with pytest.raises(OverdueError):
            calls.run(partial(work_until, end), SHORT_SECONDS)


def test_a_call_returns_what_its_work_returns_and_raises_what_it_raises(calls: BoundedCalls) -> None:
    assert [calls.run(partial(int, text), 1.0) for text in ("1", "2")] == [1, 2]
    with pytest.raises(ValueError, match="invalid literal"):
        calls.run(lambda: int("x"), 1.0)


def test_time_that_a_call_does_not_use_is_not_counted(calls: BoundedCalls, end: threading.Event) -> None:
    timer = threading.Timer(0.2, end.set)
    timer.start()
    assert calls.run(lambda: end.wait(WAIT_SECONDS), 0.1)
    timer.join()


def test_while_some_calls_are_overdue_nobody_new_is_let_in_and_the_others_go_on(calls: BoundedCalls, end: threading.Event) -> None:
    leave(calls, end, MAX_OVERDUE - 1)
    calls.check_room()
    leave(calls, end, 1)
    with pytest.raises(EngineBusyError, match="try again later"):
        calls.check_room()
    assert calls.run(lambda: 1, 1.0) == 1
    end.set()
    wait_for_room(calls)


def wait_for_room(calls: BoundedCalls) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            calls.check_room()
        except EngineBusyError:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        else:
            return


def test_while_too_many_calls_are_overdue_nothing_is_begun(calls: BoundedCalls, end: threading.Event) -> None:
    leave(calls, end, MAX_OVERDUE_OF_ALL)
    with pytest.raises(EngineBusyError):
        calls.run(lambda: 1, 1.0)
    end.set()
    wait_for_room(calls)
    assert calls.run(lambda: 2, 1.0) == 2
