import hashlib
import time
from functools import partial

import pytest

from stoker_engine.errors import EngineGenerateError
from stoker_engine.worker.bounded_calls import MAX_OVERDUE, BoundedCalls, OverdueError

WAIT_SECONDS = 60.0


def derive(num_rounds: int) -> bytes:
    """CPU time without the GIL."""
    return hashlib.pbkdf2_hmac("sha512", b"a", b"b", num_rounds)


def test_a_call_returns_what_its_work_returns_and_raises_what_it_raises() -> None:
    calls = BoundedCalls()
    assert [calls.run(partial(int, text), 1.0) for text in ("1", "2")] == [1, 2]
    with pytest.raises(ValueError, match="invalid literal"):
        calls.run(lambda: int("x"), 1.0)
    calls.close()


def test_time_that_a_call_does_not_use_is_not_counted() -> None:
    calls = BoundedCalls()
    assert calls.run(lambda: time.sleep(0.2) or 3, 0.1) == 3  # type: ignore[func-returns-value]
    calls.close()


def test_overdue_calls_are_left_and_beyond_a_few_of_them_nothing_begins_until_one_ends() -> None:
    calls = BoundedCalls()
    for _ in range(MAX_OVERDUE):
        with pytest.raises(OverdueError):
            calls.run(partial(derive, 400_000), 0.02)
        if len(calls._overdue) < MAX_OVERDUE:
            assert calls.run(lambda: 1, 1.0) == 1
    deadline = time.monotonic() + WAIT_SECONDS
    num_refused = 0
    while True:
        assert time.monotonic() < deadline
        try:
            assert calls.run(lambda: 2, 1.0) == 2
        except EngineGenerateError as error:
            assert "try again later" in str(error)
            num_refused += 1
            time.sleep(0.01)
        else:
            break
    assert num_refused
    calls.close()
