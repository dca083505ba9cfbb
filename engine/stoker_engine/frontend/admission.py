"""Admission: how much may wait for its first token. What is beyond is refused before any work is sent."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from stoker_engine.errors import ParameterError, QueueFullError


@dataclass(slots=True, frozen=True)
class QueueLimits:
    """Most requests, and prompt tokens of requests, without a first token; a request with n choices counts n times. None: any number.

    A request that comes while nothing waits is always taken, however large.
    """

    max_requests: int | None = None
    max_prefill_tokens: int | None = None


class QueuedRequests:
    """The engine requests that have been sent and have no output yet."""

    __slots__ = ("_num_prompt_tokens", "num_prefill_tokens")

    def __init__(self) -> None:
        self._num_prompt_tokens: dict[str, int] = {}
        self.num_prefill_tokens = 0

    def __len__(self) -> int:
        return len(self._num_prompt_tokens)

    def add(self, request_id: str, num_prompt_tokens: int) -> None:
        self._num_prompt_tokens[request_id] = num_prompt_tokens
        self.num_prefill_tokens += num_prompt_tokens

    def discard(self, request_id: str) -> None:
        """It has an output, or has ended. Called for every output."""
        num_prompt_tokens = self._num_prompt_tokens.pop(request_id, None)
        if num_prompt_tokens is not None:
            self.num_prefill_tokens -= num_prompt_tokens


class Admission:
    """Belongs to one event loop or thread. Raises QueueFullError for what is too much."""

    def __init__(self, limits: QueueLimits, queued: QueuedRequests) -> None:
        self._limits = limits
        self._queued = queued
        self._num_preparing = 0

    @property
    def num_preparing(self) -> int:
        """Requests that are being tokenized."""
        return self._num_preparing

    @contextmanager
    def preparing(self, num_requests: int) -> Iterator[None]:
        """Counts requests that are being tokenized as queued."""
        self.check_requests(num_requests)
        self._num_preparing += num_requests
        try:
            yield
        finally:
            self._num_preparing -= num_requests

    def check_batch(self, num_prompts: int, n: int) -> None:
        """Several prompts that come together are taken one by one: all of them must be able to wait. Raises ParameterError where they never could."""
        limit = self._limits.max_requests
        if limit is not None and num_prompts > 1 and num_prompts * n > limit:
            raise ParameterError(f"prompt has {num_prompts} prompts and n is {n}, and at most {limit} requests may wait for their first token", "prompt")
        self.check_requests(num_prompts * n)

    def check_requests(self, num_requests: int) -> None:
        """Before anything is tokenized."""
        num_queued, limit = len(self._queued) + self._num_preparing, self._limits.max_requests
        if limit is not None and num_queued and num_queued + num_requests > limit:
            raise QueueFullError(f"{num_queued} requests wait for their first token, and at most {limit} may; try again later")

    def check_prefill_tokens(self, num_tokens: int) -> None:
        """Before anything is sent."""
        num_queued, limit = self._queued.num_prefill_tokens, self._limits.max_prefill_tokens
        if limit is not None and num_queued and num_queued + num_tokens > limit:
            raise QueueFullError(f"{num_queued} prompt tokens wait to be computed, and with this request's {num_tokens} more than {limit}; try again later")
