"""Plain numbers that travel with outputs; the api turns them into metrics."""

from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from stoker_engine.finish_reason import FinishReason


class SchedulerStats(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """The scheduler after one step. Counts named `num_` are now; `prefix_cache_*`, `num_preemptions`, `num_steps`,
    `num_nan_logits` and `num_aborted` are totals since start.

    `kv_cache_usage` is the share of blocks in use, 0 to 1. `prefix_cache_queries` and `prefix_cache_hits` count tokens of first-time prompts.
    `num_deferred` of `num_waiting` wait for something besides a place: their grammar. `num_batched_tokens` is the size of the step whose result came last.
    """

    num_running: int = 0
    num_waiting: int = 0
    kv_cache_usage: float = 0.0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    num_preemptions: int = 0
    num_steps: int = 0
    num_batched_tokens: int = 0
    num_nan_logits: int = 0
    num_aborted: int = 0
    num_deferred: int = 0


@dataclass(slots=True)
class FinishedRequestStats:
    """One finished request. Times are seconds, None where the request never got that far; `arrival` is a moment of the wall clock."""

    finish_reason: FinishReason
    num_prompt_tokens: int
    num_cached_tokens: int
    num_generation_tokens: int
    max_tokens: int | None
    n: int
    e2e_latency: float
    queue_time: float | None
    prefill_time: float | None
    inference_time: float | None
    decode_time: float | None
    arrival: float = 0.0
    time_to_first_token: float | None = None


@dataclass(slots=True)
class IterationStats:
    """What one EngineCoreOutputs did, seen from the frontend. Lists have one value per request concerned, in seconds."""

    num_new_requests: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_generation_tokens: int = 0
    num_preempted: int = 0
    time_to_first_tokens: list[float] = field(default_factory=list)
    inter_token_latencies: list[float] = field(default_factory=list)
    finished_requests: list[FinishedRequestStats] = field(default_factory=list)


class StatLogger(Protocol):
    """Takes the numbers of each message from an engine: metrics, or a log line."""

    def record(self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats) -> None: ...
