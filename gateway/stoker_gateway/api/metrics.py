"""The api's metrics: a StatLogger that counts, and the pages /metrics (names `stoker_…`) and /metrics/vllm (names `vllm:…`)."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.engine_status import EngineState, EngineStatus
from stoker_engine.stats import FinishedRequestStats, IterationStats, SchedulerStats
from stoker_gateway.api.http_metrics import HttpCollector, HttpMetrics, HttpNaming
from stoker_gateway.api.metric_table import METRICS, MetricKind, MetricSpec
from stoker_gateway.api.metric_values import MetricValues, RunningTotal
from stoker_gateway.api.tool_metrics import ToolCollector, ToolMetrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TOTALS = ("prefix_cache_queries", "prefix_cache_hits", "num_preemptions")
WAITING_REASONS = ("capacity", "deferred")
SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")
"""By the level of the sleep, of which 0 takes nothing from the device."""
_GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_ratio")


class Refusal(enum.Enum):
    """Why an HTTP request was not sent to the engine."""

    UNAUTHORIZED = "unauthorized"
    INVALID = "invalid"
    QUEUE_FULL = "queue_full"
    NOT_READY = "not_ready"
    DRAINING = "draining"


@dataclass(slots=True, frozen=True)
class Gauges:
    """What goes up and down, as the pages have it."""

    num_requests_running: float
    num_requests_waiting: float
    kv_cache_usage_ratio: float


class Metrics:
    """Implements StatLogger; `render` writes a page of what has been recorded."""

    def __init__(self, model_name: str) -> None:
        self._values = MetricValues()
        self._sleep_level = 1
        self._totals = {name: RunningTotal() for name in (*_TOTALS, "corrupted_requests")}
        self._values.by_label["request_success"] = {str(reason): 0 for reason in FinishReason}
        self._values.by_label["requests_refused"] = {reason.value: 0 for reason in Refusal}
        self._values.by_label["num_requests_waiting_by_reason"] = dict.fromkeys(WAITING_REASONS, 0)
        self._values.by_label["prompt_tokens_by_source"] = {"local_compute": 0, "local_cache_hit": 0}
        self._stoker = _NamedCollector(self._values, _Naming("stoker_", {"model_name": model_name}))
        self._vllm = _NamedCollector(self._values, _Naming("vllm:", {"model_name": model_name, "engine": "0"}, is_vllm=True))
        self.http = HttpMetrics()
        self.tools = ToolMetrics()
        own, theirs = (
            HttpNaming(prefix="stoker_", labels={"model_name": model_name}, path_label="path", has_status_classes=False),
            HttpNaming(prefix="", labels={}, path_label="handler", has_status_classes=True),
        )
        self._stoker_registry = _registry(self._stoker, HttpCollector(self.http, own), ToolCollector(self.tools, "stoker_", {"model_name": model_name}))
        ProcessCollector(registry=self._stoker_registry)
        self._vllm_registry = _registry(
            self._vllm, HttpCollector(self.http, theirs), ToolCollector(self.tools, "vllm:", {"model_name": model_name, "engine": "0"})
        )

    def record(self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats) -> None:
        if scheduler_stats is not None:
            self._record_scheduler(scheduler_stats)
        self._record_iteration(iteration_stats)

    def refused(self, reason: Refusal) -> None:
        """One HTTP request more."""
        self._values.by_label["requests_refused"][reason.value] += 1

    def fell_asleep(self, level: int) -> None:
        """The engine sleeps at this level from now on, until its status says that it is awake."""
        self._sleep_level = level

    def render(self, status: EngineStatus) -> bytes:
        """The page with our names. `status` gives the engine's capacity; without an engine, nothing runs or waits."""
        return self._render(self._stoker, self._stoker_registry, status)

    def render_vllm(self, status: EngineStatus) -> bytes:
        """The page with vLLM's names."""
        return self._render(self._vllm, self._vllm_registry, status)

    def gauges(self, status: EngineStatus) -> Gauges:
        """What the pages would say now."""
        self._forget_lost_engine(status)
        return Gauges(*(self._values.numbers[name] for name in _GAUGES))

    @property
    def num_generation_tokens(self) -> int:
        """Generated since the process began."""
        return int(self._values.numbers["generation_tokens"])

    def _forget_lost_engine(self, status: EngineStatus) -> None:
        """Without an engine nothing runs or waits."""
        if not status.is_connected:
            self._values.numbers.update(dict.fromkeys(_GAUGES, 0))
            self._values.by_label["num_requests_waiting_by_reason"] = dict.fromkeys(WAITING_REASONS, 0)

    def _render(self, collector: "_NamedCollector", registry: CollectorRegistry, status: EngineStatus) -> bytes:
        self._forget_lost_engine(status)
        self._values.by_label["engine_state"] = {state.value: state is status.state for state in EngineState}
        where = SLEEP_STATES[self._sleep_level if status.is_sleeping else 0]
        self._values.by_label["engine_sleep_state"] = {state: state == where for state in SLEEP_STATES}
        collector.status = status
        return generate_latest(registry)

    def _record_scheduler(self, stats: SchedulerStats) -> None:
        numbers = self._values.numbers
        numbers["num_requests_running"] = stats.num_running
        numbers["num_requests_waiting"] = stats.num_waiting
        self._values.by_label["num_requests_waiting_by_reason"] = {"capacity": stats.num_waiting - stats.num_deferred, "deferred": stats.num_deferred}
        numbers["kv_cache_usage_ratio"] = stats.kv_cache_usage
        for name in _TOTALS:
            self._update_total(name, getattr(stats, name))
        self._update_total("corrupted_requests", stats.num_nan_logits)
        if stats.num_batched_tokens:
            self._values.histograms["iteration_tokens"].observe(stats.num_batched_tokens)

    def _update_total(self, name: str, total: int) -> None:
        self._totals[name].update(total)
        self._values.numbers[name] = self._totals[name].value

    def _record_iteration(self, stats: IterationStats) -> None:
        numbers = self._values.numbers
        numbers["requests"] += stats.num_new_requests
        numbers["prompt_tokens"] += stats.num_prompt_tokens
        numbers["prompt_tokens_cached"] += stats.num_cached_tokens
        numbers["generation_tokens"] += stats.num_generation_tokens
        by_source = self._values.by_label["prompt_tokens_by_source"]
        by_source["local_compute"] += stats.num_prompt_tokens - stats.num_cached_tokens
        by_source["local_cache_hit"] += stats.num_cached_tokens
        histograms = self._values.histograms
        histograms["time_to_first_token_seconds"].observe_each(stats.time_to_first_tokens)
        histograms["inter_token_latency_seconds"].observe_each(stats.inter_token_latencies)
        for finished in stats.finished_requests:
            self._record_finished(finished)

    def _record_finished(self, stats: FinishedRequestStats) -> None:
        self._values.by_label["request_success"][str(stats.finish_reason)] += 1
        observed: dict[str, float | None] = {
            "e2e_request_latency_seconds": stats.e2e_latency,
            "request_queue_time_seconds": stats.queue_time,
            "request_prefill_time_seconds": stats.prefill_time,
            "request_decode_time_seconds": stats.decode_time,
            "request_inference_time_seconds": stats.inference_time,
            "request_time_per_output_token_seconds": _time_per_token(stats),
            "request_prompt_tokens": stats.num_prompt_tokens,
            "request_generation_tokens": stats.num_generation_tokens,
            "request_max_num_generation_tokens": stats.max_tokens,
            "request_params_max_tokens": stats.max_tokens,
            "request_prefill_kv_computed_tokens": stats.num_prompt_tokens - stats.num_cached_tokens,
            "request_params_n": stats.n,
        }
        for name, value in observed.items():
            if value is not None:
                self._values.histograms[name].observe(value)


def _time_per_token(stats: FinishedRequestStats) -> float | None:
    if stats.decode_time is None or stats.num_generation_tokens < 2:
        return None
    return stats.decode_time / (stats.num_generation_tokens - 1)


@dataclass(slots=True, frozen=True)
class _Naming:
    """How a page names metrics, and the labels that each has."""

    prefix: str
    labels: dict[str, str]
    is_vllm: bool = False

    def name(self, spec: MetricSpec) -> str:
        return self.prefix + (spec.vllm_name if self.is_vllm else spec.name)

    def label_names(self, spec: MetricSpec) -> list[str]:
        own = spec.vllm_label if self.is_vllm else spec.label
        return [*self.labels] if own is None else [*self.labels, own]

    @property
    def num_blocks_label(self) -> str:
        return "num_gpu_blocks" if self.is_vllm else "num_blocks"


class _NamedCollector(Collector):
    """The values under the names of one page. `status` is the engine's at the time of reading."""

    def __init__(self, values: MetricValues, naming: _Naming) -> None:
        self._values = values
        self._naming = naming
        self.status = EngineStatus()

    def collect(self) -> Iterator[Metric]:
        for spec in METRICS:
            yield self._histogram(spec) if spec.kind is MetricKind.HISTOGRAM else self._number(spec)
        yield self._cache_config()

    def _number(self, spec: MetricSpec) -> Metric:
        family_type = CounterMetricFamily if spec.kind is MetricKind.COUNTER else GaugeMetricFamily
        family = family_type(self._naming.name(spec), spec.help, labels=self._naming.label_names(spec))
        labels = [*self._naming.labels.values()]
        if spec.label is None:
            family.add_metric(labels, self._values.numbers[spec.name])
        for value, number in self._values.by_label.get(spec.name, {}).items():
            family.add_metric([*labels, value], number)
        return family

    def _histogram(self, spec: MetricSpec) -> Metric:
        ready = self.status.ready
        histogram = self._values.histograms[spec.name]
        family = HistogramMetricFamily(self._naming.name(spec), spec.help, labels=self._naming.label_names(spec))
        buckets = histogram.cumulative(ready.max_model_len if spec.is_length and ready is not None else None)
        family.add_metric([*self._naming.labels.values()], buckets, histogram.sum)
        return family

    def _cache_config(self) -> Metric:
        """1, with the KV cache's shape as labels, once an engine has told it."""
        labels = [*self._naming.labels, "block_size", self._naming.num_blocks_label]
        family = GaugeMetricFamily(self._naming.prefix + "cache_config_info", "The KV cache's block size (tokens) and number of blocks.", labels=labels)
        if (ready := self.status.ready) is not None:
            family.add_metric([*self._naming.labels.values(), str(ready.block_size), str(ready.num_blocks)], 1)
        return family


def _registry(*collectors: Collector) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    return registry
