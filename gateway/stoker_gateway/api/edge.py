"""What surrounds the endpoints: the keys that callers need, the pages that may read answers, and who is told of each request."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from stoker_engine.errors import ConfigError
from stoker_gateway.api.access_log import log_access
from stoker_gateway.api.api_keys import ApiKeys
from stoker_gateway.api.config import ApiConfig
from stoker_gateway.api.metrics import Metrics
from stoker_gateway.api.observe import ObserveMiddleware
from stoker_gateway.api.request_record import Observer
from stoker_gateway.http.cors import with_cors
from stoker_gateway.http.drain import Drain

if TYPE_CHECKING:
    from stoker_gateway.api.tracing import Tracing


@dataclass(slots=True, frozen=True)
class Edge:
    """Made before anything else, because it is what a wrong setting shows in."""

    api_keys: ApiKeys | None
    cors_origins: Sequence[str]
    observers: Sequence[Observer]
    close: Callable[[], None]

    def wrap(self, app: ASGIApp, metrics: Metrics, drain: Drain) -> ASGIApp:
        """CORS, whose headers a refusal needs too, then the record of it all."""
        return ObserveMiddleware(with_cors(app, self.cors_origins), drain, (*self.observers, metrics.http.observe, metrics.tools.observe))


def make_edge(config: ApiConfig) -> Edge:
    """Raises ConfigError."""
    keys = None if config.api_keys_file is None else ApiKeys(Path(config.api_keys_file))
    tracing = None if config.otlp_endpoint is None else _make_tracing(config.otlp_endpoint)
    if tracing is None:
        return Edge(keys, config.cors_allow_origins, (log_access,), lambda: None)
    return Edge(keys, config.cors_allow_origins, (log_access, tracing.observe), tracing.close)


def _make_tracing(endpoint: str) -> "Tracing":
    """Imported here: whoever wants no traces need not have OpenTelemetry."""
    try:
        from stoker_gateway.api.tracing import Tracing
    except ImportError as error:
        raise ConfigError(f"--otlp-endpoint: {error}; install stoker[otel], or leave it out") from error
    return Tracing(endpoint)
