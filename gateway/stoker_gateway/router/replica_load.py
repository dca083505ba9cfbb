"""What a replica tells of its load, at `/load`."""

from dataclasses import dataclass

FRESH_SECONDS = 3.0
"""An older answer says nothing of now."""


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """At `time`, seconds of a steady clock."""

    time: float
    running: int
    waiting: int
    kv_cache_usage: float
    """0 to 1."""

    def num_requests(self, now: float) -> int:
        """0 where it is not fresh."""
        return self.running + self.waiting if now - self.time <= FRESH_SECONDS else 0
