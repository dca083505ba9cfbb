"""Logging of the operator: a line per record on stderr, with the InferenceDeployment that is being worked on."""

import contextvars
import json
import logging
from datetime import UTC, datetime

from stoker_engine.config import LogLevel
from stoker_operator.config import LogFormat

working_on: contextvars.ContextVar[str] = contextvars.ContextVar("working_on", default="")
"""Namespace and name of the InferenceDeployment whose reconciliation logs."""

NOISY = ("kopf", "aiohttp", "asyncio", "httpx", "httpcore")
"""kopf tells each event of each object, httpx each request."""


def configure_operator_logging(level: LogLevel, log_format: LogFormat) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)


class _TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        if title := working_on.get():
            record.message = f"{title}: {record.message}"
        return super().formatMessage(record)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if title := working_on.get():
            line["inferenceDeployment"] = title
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
