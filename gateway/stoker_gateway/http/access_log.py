"""A line of the access log, which both programs write alike."""

import logging

from stoker_engine.log import FIELDS

logger = logging.getLogger("stoker_gateway.access")

MAX_PATH_CHARACTERS = 200


def log_request(level: int, method: str, path: str, status: int, **fields: object) -> None:
    """`POST /v1/completions 200`, and the rest as name=value, or as entries of the line's JSON object.

    The path is as it came, its escapes included: no path makes a second line. Whoever calls has asked whether this level is logged.
    """
    shown = path if len(path) <= MAX_PATH_CHARACTERS else path[: MAX_PATH_CHARACTERS - 1] + "…"
    words = " ".join(f"{name}={value}" for name, value in fields.items())
    # A record of its own: logger.log would look for who calls it, and each request pays for that.
    record = logging.LogRecord(logger.name, level, "", 0, f"{method} {shown} {status or '-'} {words}", None, None)
    setattr(record, FIELDS, {"method": method, "path": shown, "status": status, **fields})
    logger.handle(record)
