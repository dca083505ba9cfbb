"""What is known of a replica by looking at its api."""

from dataclasses import dataclass

from stoker_operator.api_answers import Startup

READY = "ready"
STARTING = "starting"


@dataclass(frozen=True, slots=True)
class Load:
    """Requests in the engine, output tokens per second since the last look, and the share of the KV cache in use."""

    num_running: int
    num_waiting: int
    tokens_per_second: float
    kv_cache_usage: float


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at a replica. `load` is None while the api has no numbers; `obstacle` is why it serves no requests, None where it does."""

    startup: Startup
    load: Load | None = None
    obstacle: str | None = ""

    @property
    def is_ready(self) -> bool:
        return self.startup.phase == READY and self.obstacle is None

    @property
    def num_in_flight(self) -> int | None:
        """None while the api has no numbers."""
        return self.load.num_running + self.load.num_waiting if self.load else None


NOTHING_SEEN = Observation(Startup(phase=STARTING))
"""The api does not answer yet."""
