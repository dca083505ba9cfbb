from collections.abc import Callable
from typing import Any

import pytest

from stoker_engine.core.request_queue import FCFSRequestQueue, PriorityRequestQueue, RequestQueue


def drain(queue: RequestQueue) -> list[str]:
    return [queue.pop().request_id for _ in range(len(queue))]


def test_first_come_is_first_served(request_of: Callable[..., Any]) -> None:
    queue = FCFSRequestQueue()
    for request_id in "abc":
        queue.append(request_of(request_id, priority=ord("c") - ord(request_id)))
    assert queue.peek().request_id == "a"
    assert drain(queue) == ["a", "b", "c"]


def test_a_preempted_request_comes_before_all_others(request_of: Callable[..., Any]) -> None:
    queue = FCFSRequestQueue()
    queue.append(request_of("new"))
    for request_id in ("later", "earlier"):
        queue.prepend(request_of(request_id))
    assert drain(queue) == ["earlier", "later", "new"]


def test_a_lower_priority_number_is_more_urgent_and_arrival_breaks_ties(request_of: Callable[..., Any]) -> None:
    queue = PriorityRequestQueue()
    for request_id, priority, arrival_time in (("a", 1, 1.0), ("b", 0, 3.0), ("c", 0, 2.0), ("d", -1, 9.0)):
        queue.append(request_of(request_id, priority=priority, arrival_time=arrival_time))
    assert drain(queue) == ["d", "c", "b", "a"]


@pytest.mark.fault("F2")
def test_among_equal_priorities_a_preempted_request_comes_first(request_of: Callable[..., Any]) -> None:
    queue = PriorityRequestQueue()
    queue.append(request_of("early", arrival_time=1.0))
    queue.append(request_of("urgent", arrival_time=8.0, priority=-1))
    preempted = request_of("preempted", arrival_time=5.0)
    preempted.preempt()
    queue.prepend(preempted)
    assert drain(queue) == ["urgent", "preempted", "early"]


def test_requests_leave_from_anywhere_in_the_queue(request_of: Callable[..., Any]) -> None:
    for queue in (FCFSRequestQueue(), PriorityRequestQueue()):
        requests = [request_of(str(number), arrival_time=float(number)) for number in range(5)]
        for request in requests:
            queue.append(request)
        queue.remove([requests[0], requests[3]])
        assert {request.request_id for request in queue} == {"1", "2", "4"}
        assert drain(queue) == ["1", "2", "4"]
