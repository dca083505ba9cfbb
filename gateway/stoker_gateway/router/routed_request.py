"""RoutedRequest: what is known of one HTTP request to the gateway, for its line in the log and the metrics."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stoker_gateway.http.request_id import make_request_id
from stoker_gateway.router.upstream_answer import Header

if TYPE_CHECKING:
    from opentelemetry.trace import Span


@dataclass(slots=True)
class RoutedRequest:
    """`seconds` until its end, `first_byte_seconds` until the head of its answer; `model` is the model's first name, empty where there is none of the name.

    `error` says in a word why an answer was not as it should be. `num_bytes` of the answer's body. `attempts` counts the replicas that were tried,
    `endpoint` is the last of them. `key_name` is the name of the API key; `num_tokens` is counted where the key has a budget of tokens. `span` is
    None where nobody collects them.
    """

    request_id: str
    method: str
    path: str
    started: float = field(default_factory=time.perf_counter)
    route: str = ""
    model: str = ""
    endpoint: str = ""
    attempts: int = 0
    status: int = 0
    num_bytes: int = 0
    first_byte_seconds: float | None = None
    seconds: float = 0.0
    error: str = ""
    key_name: str = ""
    num_tokens: int = 0
    span: "Span | None" = None


Observer = Callable[[RoutedRequest], None]
"""Is told of each request when it has ended. The event loop waits for it."""


def request_id(headers: Sequence[Header]) -> str:
    """The client's, or one of our own where that is not 1 to 128 visible ASCII characters."""
    given = next((value for name, value in headers if name == b"x-request-id"), b"")
    return make_request_id(given.decode("latin-1"))
