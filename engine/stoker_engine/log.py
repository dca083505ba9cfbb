"""Logging of both programs: one line per record on stderr."""

import logging

from stoker_engine.config import LogLevel


def configure_logging(level: LogLevel) -> None:
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)
