import logging

import pytest

from stoker_engine.frontend.stat_loggers import LOG_INTERVAL_SECONDS, LoggingStatLogger
from stoker_engine.stats import IterationStats, SchedulerStats


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("stoker_engine.frontend.stat_loggers.time", clock)
    return clock


def test_one_line_tells_of_an_interval(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stat_logger = LoggingStatLogger()
    for step in range(41):
        stats = SchedulerStats(num_running=3, num_waiting=2, kv_cache_usage=0.25, prefix_cache_queries=10 * step, prefix_cache_hits=4 * step)
        stat_logger.record(stats, IterationStats(num_prompt_tokens=5, num_generation_tokens=2))
        clock.now += LOG_INTERVAL_SECONDS / 20
    assert [record.getMessage() for record in caplog.records] == [
        "3 running, 2 waiting, KV cache 25.0 % used; prompt 10.5 tokens/s, generation 4.2 tokens/s; prefix cache hit rate 40.0 %",
        "3 running, 2 waiting, KV cache 25.0 % used; prompt 10.0 tokens/s, generation 4.0 tokens/s; prefix cache hit rate 40.0 %",
    ]


def test_an_engine_with_nothing_to_do_is_not_logged(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stat_logger = LoggingStatLogger()
    clock.now += 1000
    stat_logger.record(None, IterationStats())
    assert caplog.records == []
