"""UnansweredRequests: the transport's own bound on what is sent to an engine. Limits that a user sets apply long before."""

from collections.abc import Iterable

from stoker_engine.protocol import EngineCoreOutput

MAX_UNANSWERED_REQUESTS = 10_000
MAX_UNANSWERED_BYTES = 64 << 20
"""What a stopped engine may cost its api in memory, until it is noticed to be unresponsive."""


class UnansweredRequests:
    """Requests sent, of which nothing has been heard: neither a token nor an end, nor were they aborted."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._sizes)

    def obstacle(self, num_bytes: int) -> str | None:
        """Why another request of this size cannot be sent, if it cannot. One alone always can."""
        if not self._sizes or (len(self._sizes) < MAX_UNANSWERED_REQUESTS and self.num_bytes + num_bytes <= MAX_UNANSWERED_BYTES):
            return None
        return f"the engine has yet to answer {len(self._sizes)} requests of {self.num_bytes} bytes"

    def sent(self, request_id: str, num_bytes: int) -> None:
        self._sizes[request_id] = num_bytes
        self.num_bytes += num_bytes

    def answered(self, outputs: Iterable[EngineCoreOutput]) -> None:
        if self._sizes:
            self.forget(output.request_id for output in outputs)

    def forget(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            self.num_bytes -= self._sizes.pop(request_id, 0)

    def clear(self) -> None:
        """The engine they were sent to is gone."""
        self._sizes.clear()
        self.num_bytes = 0
