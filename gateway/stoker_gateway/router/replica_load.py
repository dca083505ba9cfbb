"""What a replica tells of its load, at `/load`."""

from dataclasses import dataclass

FRESH_SECONDS = 3.0
"""An older answer says nothing of now."""

MAX_RATE_SECONDS = 30.0
"""Over a longer time between two answers a rate says nothing of now."""


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """At `time`, seconds of a steady clock."""

    time: float
    running: int
    waiting: int
    kv_cache_usage: float
    """0 to 1."""
    generation_tokens: int | None = None
    """So many it has generated; None where it does not tell."""
    tokens_per_second: float | None = None
    """Since it told before; None where that was too long ago."""

    num_own: int = 0
    """Requests of this gateway that it had then."""

    def is_fresh(self, now: float) -> bool:
        return now - self.time <= FRESH_SECONDS

    def num_others(self, now: float) -> int:
        """Requests that did not come from this gateway; 0 where it is not fresh."""
        return max(0, self.running + self.waiting - self.num_own) if self.is_fresh(now) else 0


def tokens_per_second(before: ReplicaLoad | None, now: float, generation_tokens: int | None) -> float | None:
    """A count that is lower than before is another process's."""
    if before is None or before.generation_tokens is None or generation_tokens is None or not 0 < now - before.time <= MAX_RATE_SECONDS:
        return None
    num_tokens = generation_tokens - before.generation_tokens
    return None if num_tokens < 0 else num_tokens / (now - before.time)
