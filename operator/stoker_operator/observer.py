"""Looks at a replica's api: GET /startupz, /readyz and /metrics."""

import time

import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from stoker_operator.api_answers import Readiness, Startup
from stoker_operator.observation import NOTHING_SEEN, READY, Load, Observation

_RUNNING = "stoker_num_requests_running"
_WAITING = "stoker_num_requests_waiting"
_TOKENS = "stoker_generation_tokens_total"
_KV_USAGE = "stoker_kv_cache_usage_ratio"


class ReplicaObserver:
    """Looks at one api; keeps the token count of its last look for the rate. Before the first READY there is no load, and none is asked for."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url
        self._has_been_ready = False
        self._last_tokens: tuple[float, float] | None = None

    async def look(self) -> Observation:
        """Never raises for an api that is down, starting, or answers nonsense: that is what was seen."""
        try:
            startup = msgspec.json.decode((await self._client.get(f"{self._url}/startupz")).content, type=Startup)
            is_ready = startup.phase == READY
            self._has_been_ready |= is_ready
            obstacle = await self._find_obstacle() if is_ready else ""
            load = await self._read_load() if self._has_been_ready else None
        except (httpx.HTTPError, msgspec.MsgspecError):
            self._last_tokens = None
            return NOTHING_SEEN
        return Observation(startup, load, obstacle)

    async def _find_obstacle(self) -> str | None:
        readiness = await self._client.get(f"{self._url}/readyz")
        return None if readiness.status_code == httpx.codes.OK else msgspec.json.decode(readiness.content, type=Readiness).reason

    async def _read_load(self) -> Load | None:
        metrics = await self._client.get(f"{self._url}/metrics")
        return self._load(metrics.text) if metrics.status_code == httpx.codes.OK else None

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
