"""BufferPool: the buffers that messages are encoded into, and the count of what the transport has taken but not sent yet."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

MAX_IDLE_BUFFERS = 2
"""One is being filled while another is sent; more are only wanted while the receiver lags."""
MAX_UNTRACKED_MESSAGES = 32
"""Between two tracked ones. Tracking costs 7 µs more than the copy of a step's outputs; the count may be late by so many messages."""
ZERO_COPY_BYTES = 16384
"""A message from here on is sent from its buffer: copying it would cost more than tracking it."""


class Tracker(Protocol):
    """zmq.MessageTracker, or what stands for one."""

    @property
    def done(self) -> bool:
        """The transport no longer uses the message's memory."""


@dataclass(slots=True, frozen=True)
class _InFlight:
    """A tracked message, and the untracked ones sent since the one before it. It keeps alive what the transport reads from."""

    tracker: Tracker
    buffer: bytearray
    arrays: Sequence[memoryview]
    num_messages: int
    num_bytes: int


class BufferPool:
    """For one socket with one receiver, whose messages leave in order: when a tracked one is done, so are those before it. For one thread.

    A buffer that was sent from is given out again only after its tracker is done.
    """

    def __init__(self) -> None:
        self._idle: list[bytearray] = []
        self._in_flight: deque[_InFlight] = deque()
        self._untracked_messages = 0
        self._untracked_bytes = 0
        self.num_messages = 0
        """Sent, and not known to be done; with `num_bytes`."""
        self.num_bytes = 0

    @property
    def last_tracker(self) -> Tracker | None:
        """When it is done, so is everything tracked."""
        return self._in_flight[-1].tracker if self._in_flight else None

    def take(self) -> bytearray:
        """A buffer that nobody uses."""
        self.reclaim()
        return self._idle.pop() if self._idle else bytearray()

    def put_back(self, buffer: bytearray) -> None:
        """A taken buffer that nothing was sent from."""
        if len(self._idle) < MAX_IDLE_BUFFERS:
            self._idle.append(buffer)

    def wants_tracking(self, num_bytes: int) -> bool:
        """Whether a message of this size is to be sent from its buffer and tracked; else it is to be copied."""
        return num_bytes >= ZERO_COPY_BYTES or self._untracked_messages >= MAX_UNTRACKED_MESSAGES

    def sent_copied(self, buffer: bytearray, num_bytes: int) -> None:
        """The transport has its own copy."""
        self._count(num_bytes)
        self._untracked_messages += 1
        self._untracked_bytes += num_bytes
        self.put_back(buffer)

    def sent_tracked(self, tracker: Tracker, buffer: bytearray, arrays: Sequence[memoryview], num_bytes: int) -> None:
        """The transport reads from `buffer` and `arrays` until `tracker` is done."""
        self._count(num_bytes)
        self._in_flight.append(_InFlight(tracker, buffer, arrays, self._untracked_messages + 1, self._untracked_bytes + num_bytes))
        self._untracked_messages = self._untracked_bytes = 0

    def reclaim(self) -> None:
        """Takes back what is done, oldest first."""
        while self._in_flight and self._in_flight[0].tracker.done:
            sent = self._in_flight.popleft()
            self.num_messages -= sent.num_messages
            self.num_bytes -= sent.num_bytes
            self.put_back(sent.buffer)

    def _count(self, num_bytes: int) -> None:
        self.num_messages += 1
        self.num_bytes += num_bytes
