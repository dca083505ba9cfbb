"""The engine's metrics, read when they are asked for: `stoker_engine_…` and `process_…`."""

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stoker_engine.core.engine_link import EngineLink
from stoker_engine.core.scheduler import Scheduler
from stoker_engine.protocol import EnginePhase, Heartbeat
from stoker_engine.stats import SchedulerStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "stoker_engine_"


class MetricKind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(slots=True, frozen=True)
class Reading:
    """The engine at one moment. Without a scheduler, as while the model loads, all its numbers are 0."""

    stats: SchedulerStats
    beat: Heartbeat
    num_blocks: int
    has_client: bool


@dataclass(slots=True, frozen=True)
class EngineMetric:
    """`name` has no prefix and no `_total`."""

    name: str
    kind: MetricKind
    help: str
    value: Callable[[Reading], float]


def _gauge(name: str, text: str, value: Callable[[Reading], float]) -> EngineMetric:
    return EngineMetric(name, MetricKind.GAUGE, text, value)


def _counter(name: str, text: str, value: Callable[[Reading], float]) -> EngineMetric:
    return EngineMetric(name, MetricKind.COUNTER, text, value)


METRICS: tuple[EngineMetric, ...] = (
    _counter("steps", "Steps that computed something.", lambda now: now.stats.num_steps),
    _gauge("num_requests_running", "Requests in the running list.", lambda now: now.stats.num_running),
    _gauge("num_requests_waiting", "Requests in the waiting queue.", lambda now: now.stats.num_waiting),
    _counter("requests_aborted", "Requests that were aborted.", lambda now: now.stats.num_aborted),
    _gauge("kv_cache_usage_ratio", "Share of the KV cache's blocks in use, 0 to 1.", lambda now: now.stats.kv_cache_usage),
    _gauge("kv_cache_blocks", "Blocks of the KV cache that requests can use.", lambda now: now.num_blocks),
    _counter("preemptions", "Requests put back to waiting because the KV cache was full.", lambda now: now.stats.num_preemptions),
    _counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", lambda now: now.stats.prefix_cache_queries),
    _counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.", lambda now: now.stats.prefix_cache_hits),
    _counter("corrupted_requests", "Requests whose logits were not finite.", lambda now: now.stats.num_nan_logits),
    _gauge("client_connected", "1 while an api is connected.", lambda now: now.has_client),
    _gauge("step_age_seconds", "How long the present step has been running, 0 between steps.", lambda now: now.beat.step_age),
    _gauge("loop_age_seconds", "How long ago the loop last looked at its input, 0 while it waits for some.", lambda now: now.beat.loop_age),
)
PHASE = "phase"
PHASE_HELP = "1 for the phase that the engine is in, 0 for the others."


class EngineMetrics:
    """`scheduler` is None until the loop begins."""

    def __init__(self, link: EngineLink) -> None:
        self.scheduler: Scheduler | None = None
        self._link = link
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_EngineCollector(self))
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    @property
    def phase(self) -> EnginePhase:
        return self._link.handshake.phase

    def read(self) -> Reading:
        """Every number is read by itself, while the loop goes on: each is true, together they may be a step apart."""
        scheduler = self.scheduler
        return Reading(
            stats=SchedulerStats() if scheduler is None else scheduler.make_stats(),
            beat=self._link.pulse.heartbeat(),
            num_blocks=0 if scheduler is None else scheduler.state.kv_cache_manager.block_pool.num_usable_blocks,
            has_client=self._link.handshake.has_client,
        )


class _EngineCollector(Collector):
    def __init__(self, metrics: EngineMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        reading = self._metrics.read()
        for metric in METRICS:
            family_type = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
            yield family_type(PREFIX + metric.name, metric.help, value=metric.value(reading))
        phases = GaugeMetricFamily(PREFIX + PHASE, PHASE_HELP, labels=["phase"])
        for phase in EnginePhase:
            phases.add_metric([phase.value], phase is self._metrics.phase)
        yield phases
