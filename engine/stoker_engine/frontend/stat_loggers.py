"""Where the numbers of each message of an engine go: several StatLoggers, one of them a log line now and then."""

import logging
import time
from collections.abc import Sequence

from stoker_engine.stats import IterationStats, SchedulerStats, StatLogger

logger = logging.getLogger(__name__)

LOG_INTERVAL_SECONDS = 10.0


class StatLoggerManager:
    """Hands the numbers to each logger. One that fails is told of once in the log; requests and the other loggers never notice."""

    def __init__(self, loggers: Sequence[StatLogger]) -> None:
        self._loggers = tuple(loggers)
        self._failed: set[int] = set()

    def record(self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats) -> None:
        for index, stat_logger in enumerate(self._loggers):
            try:
                stat_logger.record(scheduler_stats, iteration_stats)
            except Exception:
                if index not in self._failed:
                    self._failed.add(index)
                    logger.exception("a %s failed; its later failures are not logged", type(stat_logger).__name__)


class LoggingStatLogger:
    """One log line for all that happened, at most every LOG_INTERVAL_SECONDS and only after something did."""

    def __init__(self) -> None:
        self._scheduler_stats = SchedulerStats()
        self._begin_interval()

    def record(self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats) -> None:
        self._num_prompt_tokens += iteration_stats.num_prompt_tokens
        self._num_generation_tokens += iteration_stats.num_generation_tokens
        if scheduler_stats is None:
            return
        self._scheduler_stats = scheduler_stats
        elapsed = time.monotonic() - self._interval_began
        if elapsed >= LOG_INTERVAL_SECONDS:
            self._log(elapsed)
            self._begin_interval()

    def _begin_interval(self) -> None:
        self._interval_began = time.monotonic()
        self._num_prompt_tokens = self._num_generation_tokens = 0
        self._first_queries, self._first_hits = self._scheduler_stats.prefix_cache_queries, self._scheduler_stats.prefix_cache_hits

    def _log(self, elapsed: float) -> None:
        stats = self._scheduler_stats
        num_queries, num_hits = stats.prefix_cache_queries - self._first_queries, stats.prefix_cache_hits - self._first_hits
        logger.info(
            "%d running, %d waiting, KV cache %.1f %% used; prompt %.1f tokens/s, generation %.1f tokens/s; prefix cache hit rate %.1f %%",
            stats.num_running,
            stats.num_waiting,
            100 * stats.kv_cache_usage,
            self._num_prompt_tokens / elapsed,
            self._num_generation_tokens / elapsed,
            100 * num_hits / num_queries if num_queries > 0 else 0.0,
        )
