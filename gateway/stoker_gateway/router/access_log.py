"""The access log: a line per request, when it has ended. Probes, scrapes and the fleet page's events are logged at level debug."""

import logging

from stoker_gateway.http.access_log import log_request, logger
from stoker_gateway.router.routed_request import RoutedRequest

QUIET_ROUTES = frozenset(("/livez", "/readyz", "/health", "/metrics", "/fleet/events"))


def log_access(record: RoutedRequest) -> None:
    level = logging.DEBUG if record.route in QUIET_ROUTES else logging.INFO
    if logger.isEnabledFor(level):
        log_request(level, record.method, record.path, record.status, **_fields(record))


def _fields(record: RoutedRequest) -> dict[str, object]:
    """What there is nothing of is left out."""
    fields: dict[str, object] = {
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
