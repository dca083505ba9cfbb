import asyncio
from collections.abc import AsyncIterator

import pytest

from stoker_operator import work_queue
from stoker_operator.work_queue import WorkQueue


async def _empty(queue: WorkQueue[str]) -> bool:
    try:
        await asyncio.wait_for(queue.get(), 0.01)
    except TimeoutError:
        return True
    return False


async def test_a_key_is_in_the_queue_once_however_often_it_is_added():
    queue = WorkQueue[str]()
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert queue.depth == 2
    assert [await queue.get(), await queue.get()] == ["a", "b"]


async def test_a_key_that_is_worked_on_is_given_to_no_other_worker_and_comes_again_afterwards():
    queue = WorkQueue[str]()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    assert await _empty(queue)
    queue.done("a")
    assert await queue.get() == "a"


async def test_a_key_that_nothing_came_for_meanwhile_is_done():
    queue = WorkQueue[str]()
    queue.add("a")
    queue.done(await queue.get())
    assert await _empty(queue)


async def test_of_two_delays_the_shorter_one_counts():
    queue = WorkQueue[str]()
    queue.add_after("a", 3600)
    queue.add_after("a", 0.001)
    queue.add_after("a", 3600)
    assert await asyncio.wait_for(queue.get(), 5) == "a"
    queue.done("a")
    assert await _empty(queue)


async def test_a_key_that_is_added_does_not_come_again_for_its_old_delay():
    queue = WorkQueue[str]()
    queue.add_after("a", 0.02)
    queue.add("a")
    queue.done(await queue.get())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 0.05)


class Clock:
    """The event loop's, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Clock]:
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "time", clock := Clock())
        yield clock


def _fail_again(queue: WorkQueue[str], clock: Clock) -> float:
    """At the time that it is due; the next delay."""
    delay = queue.retry("a")
    clock.seconds += delay
    return delay


async def test_delays_double_with_each_failure_up_to_a_limit_and_start_anew_after_a_success(clock: Clock):
    queue = WorkQueue[str]()
    delays = [_fail_again(queue, clock) for _ in range(12)]
    assert all(0.8 * work_queue.FIRST_RETRY_SECONDS * 2**n <= delays[n] <= 1.2 * work_queue.FIRST_RETRY_SECONDS * 2**n for n in range(6))
    assert delays[-1] <= 1.2 * work_queue.LAST_RETRY_SECONDS
    queue.succeeded("a")
    assert queue.retry("a") <= 1.2 * work_queue.FIRST_RETRY_SECONDS
    queue.close()


async def test_failures_of_tries_that_something_else_asked_for_put_nothing_off(clock: Clock):
    queue = WorkQueue[str]()
    delay = queue.retry("a")
    for _ in range(100):
        clock.seconds += delay / 200
        assert clock.seconds + queue.retry("a") == pytest.approx(delay)
    clock.seconds = delay
    assert queue.retry("a") <= 1.2 * 2 * work_queue.FIRST_RETRY_SECONDS
    queue.close()


async def test_a_retry_is_never_earlier_than_the_api_server_asks_for():
    queue = WorkQueue[str]()
    assert queue.retry("a", at_least=30.0) >= 30.0
    queue.close()


async def test_the_age_is_that_of_the_key_that_waits_longest():
    queue = WorkQueue[str]()
    assert queue.oldest_since is None
    before = asyncio.get_running_loop().time()
    queue.add("a")
    queue.add("b")
    assert await queue.get() == "a"
    assert queue.oldest_since is not None and queue.oldest_since >= before
    assert queue.active_since is not None
