"""Logging of the operator: a line per record on stderr, with the InferenceDeployment that is being worked on."""

import contextvars
import logging

from stoker_engine.config import LogFormat, LogLevel
from stoker_engine.log import TEXT_FORMAT, Fields, JsonFormatter

working_on: contextvars.ContextVar[str] = contextvars.ContextVar("working_on", default="")
"""Namespace and name of the InferenceDeployment whose reconciliation logs."""

NOISY = ("kopf", "aiohttp", "asyncio", "httpx", "httpcore")
"""kopf tells each event of each object, httpx each request."""


def configure_operator_logging(level: LogLevel, log_format: LogFormat) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(_working_on) if log_format == "json" else _TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)


class _TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__(TEXT_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        if title := working_on.get():
            record.message = f"{title}: {record.message}"
        return super().formatMessage(record)


def _working_on(_record: logging.LogRecord) -> Fields:
    title = working_on.get()
    return {"inferenceDeployment": title} if title else {}
