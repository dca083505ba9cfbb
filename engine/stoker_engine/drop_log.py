"""DropLog: what is said of dropped frames. A flood of garbage must not fill the log."""

import logging
import time

INTERVAL_SECONDS = 10.0
"""Between two lines: a peer that sends nothing but garbage costs 6 lines a minute."""


class DropLog:
    """One line for the first dropped frame; those of the next seconds are counted, and the line after tells how many they were. For one thread."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._next_line = 0.0
        self._num_unsaid = 0

    def dropped(self, what: str, why: object) -> None:
        """`what` was dropped, and `why`."""
        now = time.monotonic()
        if now < self._next_line:
            self._num_unsaid += 1
            return
        more = f" ({self._num_unsaid} more since the last such line)" if self._num_unsaid else ""
        self._logger.warning("dropped %s: %.500s%s", what, why, more)
        self._next_line, self._num_unsaid = now + INTERVAL_SECONDS, 0
