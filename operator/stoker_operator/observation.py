"""What a replica's api says about it: GET /startupz, /readyz and /metrics, once a second."""

import time
from dataclasses import dataclass

import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from stoker_operator.api_answers import Readiness, Startup

READY = "ready"
STARTING = "starting"

_RUNNING = "stoker_num_requests_running"
_WAITING = "stoker_num_requests_waiting"
_TOKENS = "stoker_generation_tokens_total"
_KV_USAGE = "stoker_kv_cache_usage_ratio"


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


class ReplicaObserver:
    """Looks at one api; keeps the token count of its last look for the rate."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url
        self._last_tokens: tuple[float, float] | None = None

    async def look(self) -> Observation:
        """Never raises for an api that is down, starting, or answers nonsense: that is what was seen."""
        try:
            startup = msgspec.json.decode((await self._client.get(f"{self._url}/startupz")).content, type=Startup)
            readiness = await self._client.get(f"{self._url}/readyz")
            obstacle = None if readiness.status_code == httpx.codes.OK else msgspec.json.decode(readiness.content, type=Readiness).reason
            metrics = await self._client.get(f"{self._url}/metrics")
        except (httpx.HTTPError, msgspec.MsgspecError):
            self._last_tokens = None
            return NOTHING_SEEN
        return Observation(startup, self._load(metrics.text) if metrics.status_code == httpx.codes.OK else None, obstacle)

    def _load(self, text: str) -> Load | None:
        try:
            totals = sum_samples(text)
        except ValueError:
            return None
        if _RUNNING not in totals:
            return None
        now, tokens = time.monotonic(), totals.get(_TOKENS, 0.0)
        before, self._last_tokens = self._last_tokens, (now, tokens)
        # A count that went down is another process's: no rate yet.
        rate = max(0.0, tokens - before[1]) / (now - before[0]) if before and now > before[0] else 0.0
        return Load(int(totals[_RUNNING]), int(totals.get(_WAITING, 0)), rate, totals.get(_KV_USAGE, 0.0))


def sum_samples(text: str) -> dict[str, float]:
    """Prometheus text → the sum of each sample name over its labels. Raises ValueError for text that is none."""
    totals: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return totals
