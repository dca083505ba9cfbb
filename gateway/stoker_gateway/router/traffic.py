"""TrafficConfig: how the gateway sends a model's requests to its replicas (`spec.traffic`)."""

from typing import Annotated, Literal

from msgspec import Meta

from stoker_engine.config import Duration, DurationBounds
from stoker_engine.settings import Settings, to_the_end

LoadBalancing = Literal["LeastRequest", "RoundRobin", "PrefixHash", "SessionHash"]
HeaderName = Annotated[str, Meta(pattern=to_the_end(r"^[A-Za-z0-9-]+$"), min_length=1, max_length=64, examples=["X-Session-Id"])]


class RetryConfig(Settings, frozen=True, kw_only=True):
    """Other replicas that are tried (`spec.traffic.retry`)."""

    attempts: Annotated[int, Meta(ge=0, le=10, description="Further replicas that may be tried while no byte of an answer has come.")] = 2


class TimeoutConfig(Settings, frozen=True, kw_only=True):
    """How long the gateway waits for a replica (`spec.traffic.timeouts`)."""

    connect: Annotated[Duration, Meta(description="For a connection; then another replica is tried.", extra={"bounds": DurationBounds()})] = "2s"
    stream_idle: Annotated[
        Duration,
        Meta(description="Between two pieces of an answer that has begun; a longer silence ends it with an error.", extra={"bounds": DurationBounds()}),
    ] = "120s"
    request: Annotated[
        Duration | None, Meta(description="For the whole request, also while its answer streams. Default: no limit.", extra={"bounds": DurationBounds()})
    ] = None


class QueueConfig(Settings, frozen=True, kw_only=True):
    """Requests that wait in the gateway for a replica that can take them (`spec.traffic.queue`)."""

    max_requests: Annotated[int, Meta(ge=0, le=100_000, description="Most that wait in one gateway; more are answered with 503.")] = 256
    timeout: Annotated[Duration, Meta(description="How long one waits at most; then it is answered with 503.", extra={"bounds": DurationBounds()})] = "60s"


class TrafficConfig(Settings, frozen=True, kw_only=True):
    """How the gateway sends a model's requests to its replicas (`spec.traffic`)."""

    load_balancing: Annotated[
        LoadBalancing,
        Meta(
            description="LeastRequest takes the less busy of two replicas drawn at random; RoundRobin each in turn; PrefixHash the same one for prompts that "
            "begin alike, unless it is too busy, so that its prefix cache has them; SessionHash the same one for each value of sessionHeader."
        ),
    ] = "LeastRequest"
    session_header: Annotated[HeaderName | None, Meta(description="Header that names the session; only for SessionHash, which needs it.")] = None
    retry: Annotated[RetryConfig, Meta(description="Other replicas that are tried.")] = RetryConfig()
    timeouts: Annotated[TimeoutConfig, Meta(description="How long the gateway waits for a replica.")] = TimeoutConfig()
    queue: Annotated[QueueConfig, Meta(description="Requests that wait for a replica that can take them.")] = QueueConfig()
