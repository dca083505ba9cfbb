"""The access log: a line per request, when it has ended. Probes and scrapes are logged at level debug."""

import logging

from stoker_gateway.api.api_keys import OPEN_PATHS
from stoker_gateway.api.request_record import RequestRecord
from stoker_gateway.http.access_log import log_request, logger


def log_access(record: RequestRecord) -> None:
    level = logging.DEBUG if record.route in OPEN_PATHS else logging.INFO
    if logger.isEnabledFor(level):
        log_request(level, record.method, record.path, record.status, **_fields(record))


def _fields(record: RequestRecord) -> dict[str, object]:
    fields: dict[str, object] = {
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
