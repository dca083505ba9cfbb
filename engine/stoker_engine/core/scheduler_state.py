"""SchedulerState: what the passes of a step share, and the counters of the statistics."""

import enum
from dataclasses import dataclass, field

from stoker_engine.core.kv_cache_manager import KVCacheManager
from stoker_engine.core.request import Request
from stoker_engine.core.request_queue import RequestQueue


class PauseState(enum.Enum):
    """Who may be scheduled: everybody; who has been admitted before, preempted ones included; nobody."""

    UNPAUSED = 0
    PAUSED_NEW = 1
    PAUSED_ALL = 2


@dataclass(slots=True, frozen=True)
class SchedulerLimits:
    """`max_num_tokens` bounds prompt plus output of one request: the model's context, or the whole KV cache where that is smaller.

    `num_watermark_blocks` stay free when a request is admitted beside running ones. With async_scheduling a request may be scheduled for a token that
    a step under way has yet to sample.
    """

    max_model_len: int
    max_num_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    enable_chunked_prefill: bool
    priority_scheduling: bool
    async_scheduling: bool
    num_watermark_blocks: int


@dataclass(slots=True)
class SchedulerCounters:
    """Totals since start, and the size of the step whose result came last."""

    num_steps: int = 0
    num_batched_tokens: int = 0
    num_preemptions: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    num_nan_logits: int = 0
    num_aborted: int = 0


@dataclass(slots=True)
class SchedulerState:
    """A live request is in `requests`, and in exactly one of `awaiting_grammar`, `waiting` and `running` (in the order of admission). `constrained` are
    those with a grammar."""

    limits: SchedulerLimits
    kv_cache_manager: KVCacheManager
    waiting: RequestQueue
    awaiting_grammar: dict[str, Request] = field(default_factory=dict)
    running: list[Request] = field(default_factory=list)
    requests: dict[str, Request] = field(default_factory=dict)
    constrained: dict[str, Request] = field(default_factory=dict)
    counters: SchedulerCounters = field(default_factory=SchedulerCounters)
    pause_state: PauseState = PauseState.UNPAUSED
