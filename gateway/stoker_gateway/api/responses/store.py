"""What is kept of responses, in this process's memory: bounded in number and in bytes, the oldest that are over go first."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from stoker_gateway.openai.errors import ApiError, queue_full
from stoker_gateway.openai.responses.protocol import (
    ConversationItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputMessage,
    ReasoningItem,
    Response,
)

MAX_RESPONSES = 1024
MAX_BYTES = 64 * 1024 * 1024
_ITEM_BYTES = 600
"""What an item takes besides its texts."""


class EventLog:
    """The events of a stream that goes on in the background: they can be read from any of them on, while they come and afterwards."""

    def __init__(self) -> None:
        self._events: list[bytes] = []
        self._is_over = False
        self._changed = asyncio.Event()
        self.num_bytes = 0

    def add(self, event: bytes) -> None:
        self._events.append(event)
        self.num_bytes += sys.getsizeof(event)
        self._wake()

    def end(self) -> None:
        self._is_over = True
        self._wake()

    async def follow(self, start: int) -> AsyncGenerator[bytes]:
        """The events from the one with the sequence number `start` on, until the stream is over."""
        while True:
            changed, is_over, data = self._changed, self._is_over, b"".join(self._events[start:])
            start = max(start, len(self._events))
            if data:
                yield data
            if is_over:
                return
            if changed is self._changed:
                await changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


@dataclass(slots=True)
class StoredResponse:
    """`conversation` is what the model has read, `num_input` items, the instructions apart, and then its answer.

    `task` makes what is not over; `events` are those of a background stream.
    """

    response: Response
    conversation: Sequence[ConversationItem]
    num_input: int = field(init=False)
    num_bytes: int = 0
    task: asyncio.Task[None] | None = None
    events: EventLog | None = field(default=None)

    def __post_init__(self) -> None:
        self.num_input = len(self.conversation)

    @property
    def is_over(self) -> bool:
        return self.response.status not in ("queued", "in_progress")


def conversation_bytes(conversation: Sequence[ConversationItem]) -> int:
    return sum(_ITEM_BYTES + sum(map(sys.getsizeof, _texts(item))) for item in conversation)


def _texts(item: ConversationItem) -> list[str]:
    match item:
        case InputMessage() | ReasoningItem():
            return [part.text for part in item.content]
        case FunctionCallItem():
            return [item.call_id, item.name, item.arguments]
        case FunctionCallOutputItem():
            return [item.call_id, item.output]


class ResponseStore:
    def __init__(self, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        self._max_responses = max_responses
        self.max_bytes = max_bytes
        self._stored: dict[str, StoredResponse] = {}
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._stored)

    def put(self, stored: StoredResponse) -> bool:
        """Keeps it, or what it has become; older ones that are over make room. False where that is not enough: then it is not kept."""
        self.remove(stored.response.id)
        if not self._make_room(1, stored.num_bytes):
            return False
        self._stored[stored.response.id] = stored
        self.num_bytes += stored.num_bytes
        return True

    def put_running(self, stored: StoredResponse) -> None:
        """Raises ApiError (429) where what runs in the background leaves no room: nobody could fetch the answer."""
        if not self.put(stored):
            raise queue_full("Too many responses are being made in the background, or too large ones; try again later.")

    def find(self, response_id: str) -> StoredResponse | None:
        return self._stored.get(response_id)

    def get(self, response_id: str) -> StoredResponse:
        """Raises ApiError (404)."""
        stored = self._stored.get(response_id)
        if stored is None:
            raise ApiError(f"Response with id '{response_id[:100]}' not found.", param="response_id", status=404, code="response_not_found")
        return stored

    def remove(self, response_id: str) -> None:
        stored = self._stored.pop(response_id, None)
        if stored is not None:
            self.num_bytes -= stored.num_bytes

    def grow(self, stored: StoredResponse, num_bytes: int) -> bool:
        """It takes more than it did. False where that is too much. One that is not kept any more may grow."""
        if self.find(stored.response.id) is not stored:
            return True
        if not self._make_room(0, num_bytes, but=stored):
            return False
        stored.num_bytes += num_bytes
        self.num_bytes += num_bytes
        return True

    def _make_room(self, num_responses: int, num_bytes: int, but: StoredResponse | None = None) -> bool:
        """By those that are over, the oldest first, `but` for one. Where all of them are not enough none goes."""
        over = [old for old in self._stored.values() if old.is_over and old is not but]
        if not self._has_room(num_responses - len(over), num_bytes - sum(old.num_bytes for old in over)):
            return False
        for old in over:
            if self._has_room(num_responses, num_bytes):
                break
            self.remove(old.response.id)
        return True

    def _has_room(self, num_responses: int, num_bytes: int) -> bool:
        return len(self._stored) + num_responses <= self._max_responses and self.num_bytes + num_bytes <= self.max_bytes
