"""BodyMemory: so many bytes of requests' bodies the gateway holds at once, and no more."""

import asyncio
from collections import deque

from stoker_gateway.router.errors import bodies_fill_memory

WAIT_SECONDS = 5.0
"""How long a body that is coming in waits for others to go."""

SMALL_BYTES = 64 * 1024
RESERVED_SHARE = 4
"""A quarter is for the first SMALL_BYTES of bodies: long ones leave short ones room."""


class BodyMemory:
    """For bodies of at most `max_body_bytes` each and `max_bytes` together. Raises ValueError where one of them has no room. Lives on one event loop."""

    def __init__(self, max_body_bytes: int, max_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self.num_bytes = 0
        """Held now."""
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[int, int, asyncio.Future[None]]] = deque()
        """Bytes, limit, and who waits for them."""
        if max_body_bytes > self._max_long_bytes:
            raise ValueError(f"three quarters of it, {self._max_long_bytes} bytes, are less than one body of {max_body_bytes} bytes may have")

    @property
    def _max_long_bytes(self) -> int:
        return self._max_bytes - self._max_bytes // RESERVED_SHARE

    async def take(self, num_bytes: int, num_before: int) -> None:
        """For a body that has `num_before` already. Raises ApiError (503) where there is no room for them in time."""
        limit = self._max_bytes if num_before + num_bytes <= SMALL_BYTES else self._max_long_bytes
        if self.num_bytes + num_bytes <= limit:
            self.num_bytes += num_bytes
            return
        entry = (num_bytes, limit, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await entry[2]
        except BaseException as error:
            if entry in self._waiting:
                self._waiting.remove(entry)
            else:  # its turn has just come
                self.give_back(num_bytes)
            if isinstance(error, TimeoutError):
                raise bodies_fill_memory() from None
            raise

    def give_back(self, num_bytes: int) -> None:
        self.num_bytes -= num_bytes
        for entry in tuple(self._waiting):
            wanted, limit, turn = entry
            if self.num_bytes + wanted <= limit and not turn.done():
                self._waiting.remove(entry)
                self.num_bytes += wanted
                turn.set_result(None)


class HeldBody:
    """A request's body for as long as it may have to be sent: until a replica has begun its answer, or the request ends."""

    __slots__ = ("_memory", "_num_bytes", "prompt", "raw")

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self._num_bytes = 0
        self.raw = b""
        self.prompt = b""
        """The beginning of its prompt, or of its messages as they came."""

    async def grow(self, num_bytes: int) -> None:
        """Before so many of its bytes are kept. Raises ApiError (503)."""
        await self._memory.take(num_bytes, self._num_bytes)
        self._num_bytes += num_bytes

    def drop(self) -> None:
        self.raw = self.prompt = b""
        if self._num_bytes:
            self._memory.give_back(self._num_bytes)
            self._num_bytes = 0
