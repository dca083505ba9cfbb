"""Plain numbers that travel with outputs; the api turns them into metrics."""

import msgspec


class SchedulerStats(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """The scheduler after one step. Counts named `num_` are now; `prefix_cache_*`, `num_preemptions` and `num_steps` are totals since start.

    `kv_cache_usage` is the share of blocks in use, 0 to 1. `prefix_cache_queries` and `prefix_cache_hits` count tokens of first-time prompts.
    `num_batched_tokens` is the size of this step.
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
