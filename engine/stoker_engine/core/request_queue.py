"""The waiting queue, in one of two orders: first come first served, or by priority."""

import heapq
from collections import deque
from collections.abc import Collection, Iterator
from typing import Protocol

from stoker_engine.core.request import Request, RequestStatus

PriorityKey = tuple[int, bool, float, str]


def priority_key(request: Request) -> PriorityKey:
    """Smaller is more urgent: priority, then preempted ones, whose work would be lost, then arrival."""
    return request.wire.priority, request.status is not RequestStatus.PREEMPTED, request.wire.arrival_time, request.request_id


class RequestQueue(Protocol):
    """Requests that wait to be admitted, in the order of admission."""

    def append(self, request: Request) -> None:
        """A new request."""

    def prepend(self, request: Request) -> None:
        """A preempted request: before the new ones that are no more urgent."""

    def peek(self) -> Request:
        """The next one. Raises IndexError where nobody waits."""

    def pop(self) -> Request: ...

    def first_preempted(self) -> Request | None:
        """The next one of those that were preempted."""

    def remove(self, requests: Collection[Request]) -> None:
        """Takes out those of `requests` that wait, in one pass."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]:
        """In no particular order."""


class FCFSRequestQueue:
    """First come first served."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()

    def append(self, request: Request) -> None:
        self._requests.append(request)

    def prepend(self, request: Request) -> None:
        self._requests.appendleft(request)

    def peek(self) -> Request:
        return self._requests[0]

    def pop(self) -> Request:
        return self._requests.popleft()

    def first_preempted(self) -> Request | None:
        """They stand before all others."""
        head = self._requests[0] if self._requests else None
        return head if head is not None and head.status is RequestStatus.PREEMPTED else None

    def remove(self, requests: Collection[Request]) -> None:
        leaving = set(requests)
        self._requests = deque(request for request in self._requests if request not in leaving)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)


class PriorityRequestQueue:
    """A heap by `priority_key`."""

    def __init__(self) -> None:
        self._heap: list[tuple[PriorityKey, Request]] = []

    def append(self, request: Request) -> None:
        heapq.heappush(self._heap, (priority_key(request), request))

    def prepend(self, request: Request) -> None:
        self.append(request)

    def peek(self) -> Request:
        return self._heap[0][1]

    def pop(self) -> Request:
        return heapq.heappop(self._heap)[1]

    def first_preempted(self) -> Request | None:
        return min((entry for entry in self._heap if entry[1].status is RequestStatus.PREEMPTED), default=(None, None))[1]

    def remove(self, requests: Collection[Request]) -> None:
        leaving = set(requests)
        self._heap = [entry for entry in self._heap if entry[1] not in leaving]
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Request]:
        return (request for _, request in self._heap)
