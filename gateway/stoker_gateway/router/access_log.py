"""The access log: a line per request, when it has ended. Probes, scrapes and the fleet page's events are logged at level debug."""

import logging

from stoker_engine.log import FIELDS
from stoker_gateway.router.routed_request import RoutedRequest

logger = logging.getLogger("stoker_gateway.access")

MAX_PATH_CHARACTERS = 200
QUIET_ROUTES = frozenset(("/livez", "/readyz", "/health", "/metrics", "/fleet/events"))


def log_access(record: RoutedRequest) -> None:
    """`POST /v1/completions 200`, and the rest as name=value, or as entries of the line's JSON object."""
    level = logging.DEBUG if record.route in QUIET_ROUTES else logging.INFO
    if logger.isEnabledFor(level):
        fields = _fields(record)
        words = " ".join(f"{name}={value}" for name, value in fields.items() if name not in ("method", "path", "status"))
        logger.log(level, "%s %s %s %s", record.method, fields["path"], record.status or "-", words, extra={FIELDS: fields})


def _fields(record: RoutedRequest) -> dict[str, object]:
    """The path is as it came, its escapes included: no path makes a second line. What there is nothing of is left out."""
    fields: dict[str, object] = {
        "method": record.method,
        "path": record.path if len(record.path) <= MAX_PATH_CHARACTERS else record.path[: MAX_PATH_CHARACTERS - 1] + "…",
        "status": record.status,
        "requestId": record.request_id,
        "seconds": round(record.seconds, 6),
        "bytes": record.num_bytes,
    }
    if record.first_byte_seconds is not None:
        fields["firstByteSeconds"] = round(record.first_byte_seconds, 6)
    if record.model:
        fields["model"] = record.model
    if record.endpoint:
        fields["endpoint"] = record.endpoint
        fields["attempts"] = record.attempts
    if record.key_name:
        fields["key"] = record.key_name
    if record.num_tokens:
        fields["tokens"] = record.num_tokens
    if record.error:
        fields["error"] = record.error
    return fields
