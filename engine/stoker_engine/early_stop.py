"""A signal to stop that comes while a program is still being imported: there is nothing to drain."""

import os
import signal
from collections.abc import Callable
from types import FrameType

from stoker_engine.exit_codes import ExitCode


def stop_at_once_on_signals(last_words: Callable[[], None] | None = None) -> None:
    """Until the program takes the signals over. As process 1 of a container, without handlers, it would not even hear them.

    `last_words` must not import anything: the signal may come in the middle of an import.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        if last_words is not None:
            last_words()
        os._exit(ExitCode.OK)  # an exception could be swallowed by what is being imported

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
