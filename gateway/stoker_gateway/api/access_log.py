"""The access log: a line per request, when it has ended. Probes and scrapes are logged at level debug."""

import logging

from stoker_engine.log import FIELDS
from stoker_gateway.api.api_keys import OPEN_PATHS
from stoker_gateway.api.request_record import RequestRecord

logger = logging.getLogger("stoker_gateway.access")

MAX_PATH_CHARACTERS = 200


def log_access(record: RequestRecord) -> None:
    """`POST /v1/completions 200`, and the rest as name=value, or as entries of the line's JSON object."""
    level = logging.DEBUG if record.route in OPEN_PATHS else logging.INFO
    if logger.isEnabledFor(level):
        fields = _fields(record)
        words = " ".join(f"{name}={value}" for name, value in fields.items() if name not in ("method", "path", "status"))
        logger.log(level, "%s %s %s %s", record.method, fields["path"], record.status or "-", words, extra={FIELDS: fields})


def _fields(record: RequestRecord) -> dict[str, object]:
    """The path is as it came, its escapes included: no path makes a second line."""
    fields: dict[str, object] = {
        "method": record.method,
        "path": record.path if len(record.path) <= MAX_PATH_CHARACTERS else record.path[: MAX_PATH_CHARACTERS - 1] + "…",
        "status": record.status,
        "requestId": record.request_id,
        "seconds": round(record.seconds, 6),
    }
    if record.request is not None:
        first_token = record.time_to_first_token
        fields |= {
            "model": record.request.model,
            "promptTokens": record.num_prompt_tokens,
            "cachedTokens": record.num_cached_tokens,
            "outputTokens": record.num_output_tokens,
            **({} if first_token is None else {"timeToFirstToken": round(first_token, 6)}),
            "finishReasons": ",".join(sorted(set(record.finish_reasons))),
        }
    return fields
