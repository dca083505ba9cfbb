"""RequestTimes: one request's way through engine and frontend, as the numbers of IterationStats and FinishedRequestStats."""

from stoker_engine.protocol import EngineCoreEventType, EngineCoreOutput
from stoker_engine.stats import IterationStats


class RequestTimes:
    """Moments on the engine's monotonic clock, None until reached; `arrival` is the frontend's wall clock. A preemption does not reset `scheduled`."""

    def __init__(self, arrival: float) -> None:
        self.arrival = arrival
        self.time_to_first_token: float | None = None
        self._queued: float | None = None
        self._scheduled: float | None = None
        self._first_token: float | None = None
        self._last_token: float | None = None

    def record(self, output: EngineCoreOutput, timestamp: float, now: float, stats: IterationStats) -> None:
        """Take one output, made at `timestamp` on the engine's clock and read at `now` on the wall clock."""
        for event in output.events or []:
            if event.type is EngineCoreEventType.QUEUED:
                self._queued = event.timestamp
            elif event.type is EngineCoreEventType.SCHEDULED:
                self._scheduled = event.timestamp if self._scheduled is None else self._scheduled
            else:
                stats.num_preempted += 1
        if output.prefill_stats is not None:
            stats.num_prompt_tokens += output.prefill_stats.num_prompt_tokens
            stats.num_cached_tokens += output.prefill_stats.num_cached_tokens
        if not output.new_token_ids:
            return
        stats.num_generation_tokens += len(output.new_token_ids)
        if self._last_token is None:
            self._first_token = timestamp
            self.time_to_first_token = now - self.arrival
            stats.time_to_first_tokens.append(self.time_to_first_token)
        else:
            stats.inter_token_latencies.append(timestamp - self._last_token)
        self._last_token = timestamp

    @property
    def queue_time(self) -> float | None:
        return _interval(self._queued, self._scheduled)

    @property
    def prefill_time(self) -> float | None:
        return _interval(self._scheduled, self._first_token)

    @property
    def inference_time(self) -> float | None:
        return _interval(self._scheduled, self._last_token)

    @property
    def decode_time(self) -> float | None:
        return _interval(self._first_token, self._last_token)


def _interval(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start
