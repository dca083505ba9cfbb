"""RequestRecord: what is known of one HTTP request, for its line in the log, its span and the metrics."""

import contextvars
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from stoker_engine.stats import FinishedRequestStats
from stoker_gateway.openai.request import GenerationRequest


@dataclass(slots=True)
class RequestRecord:
    """`started` is wall-clock seconds, `seconds` how long it took; `route` is the path with its placeholders, empty where there is no such path.

    `status` is 0 where nothing was answered. What was sent to the engine: `request`, the answer's `response_id`, in `finished` each choice's
    numbers, and in `tool_outcomes` whether it called.
    """

    request_id: str
    method: str
    path: str
    started: float
    route: str = ""
    status: int = 0
    seconds: float = 0.0
    request: GenerationRequest | None = None
    response_id: str = ""
    trace_headers: dict[str, str] = field(default_factory=dict)
    finished: list[FinishedRequestStats] = field(default_factory=list)
    tool_outcomes: list[str] = field(default_factory=list)

    @property
    def num_prompt_tokens(self) -> int:
        """A prompt of n choices is counted once."""
        return round(sum(stats.num_prompt_tokens / stats.n for stats in self.finished))

    @property
    def num_cached_tokens(self) -> int:
        """Of n choices of a prompt, the mean."""
        return round(sum(stats.num_cached_tokens / stats.n for stats in self.finished))

    @property
    def num_output_tokens(self) -> int:
        return sum(stats.num_generation_tokens for stats in self.finished)

    @property
    def time_to_first_token(self) -> float | None:
        """From the request's arrival to the first token of any choice, in seconds."""
        first_tokens = [stats.arrival + stats.time_to_first_token for stats in self.finished if stats.time_to_first_token is not None]
        return max(min(first_tokens) - self.started, 0.0) if first_tokens else None

    @property
    def finish_reasons(self) -> list[str]:
        return [str(stats.finish_reason) for stats in self.finished]


Observer: TypeAlias = Callable[[RequestRecord], None]
"""Is told of each request when it has ended. The event loop waits for it."""

_current: contextvars.ContextVar[RequestRecord | None] = contextvars.ContextVar("request_record", default=None)


def begin_record(record: RequestRecord) -> None:
    """From here on, this task and those that it makes work for this request."""
    _current.set(record)


def current_record() -> RequestRecord | None:
    """The request that this task works for."""
    return _current.get()
