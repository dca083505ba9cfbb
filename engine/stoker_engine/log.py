"""Logging of the programs: one line per record on stderr, for people or as a JSON object."""

import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from stoker_engine.config import LogFormat, LogLevel

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FIELDS = "fields"
"""The attribute of a record, by `extra`, that has more entries for its JSON object."""

Fields = Mapping[str, object]

_encode = json.JSONEncoder(ensure_ascii=False).encode


def configure_logging(level: LogLevel, log_format: LogFormat = "text") -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(_own_fields) if log_format == "json" else logging.Formatter(TEXT_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # No line has them, and each record would look for them: Python's "Logging HOWTO", optimization.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


class JsonFormatter(logging.Formatter):
    """An object per line; `more` has entries besides time, level, logger, message and traceback."""

    def __init__(self, more: Callable[[logging.LogRecord], Fields]) -> None:
        super().__init__()
        self._more = more

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._more(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _encode(line)


def _own_fields(record: logging.LogRecord) -> Fields:
    fields: Fields = getattr(record, FIELDS, {})
    return fields
