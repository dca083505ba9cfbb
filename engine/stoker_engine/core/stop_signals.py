"""SIGTERM and SIGINT, heard on a thread of their own: also while the main thread sits in native code, where no Python handler runs."""

import os
import signal
import threading
from types import FrameType
from typing import Protocol

from stoker_engine.exit_codes import ExitCode

NUMBERS = (signal.SIGTERM, signal.SIGINT)


class StopListener(Protocol):
    cause: str
    """What asked for the stop."""

    def stop_requested(self, cause: str) -> None:
        """One signal more, on the signal thread."""

    @property
    def ends_by_exception(self) -> bool:
        """Whether a signal is to end the main thread's work by SystemExit, as while the model loads."""


class StopSignals:
    """Tells a StopListener of each signal. Made in the main thread.

    The operating system's handler writes the signal's number to a pipe, whatever the main thread does, and the signal thread reads it.
    """

    def __init__(self, listener: StopListener) -> None:
        self._listener = listener
        self._read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in NUMBERS:
            signal.signal(number, self._in_main_thread)
        threading.Thread(target=self._listen, name="signals", daemon=True).start()

    def _in_main_thread(self, number: int, _frame: FrameType | None) -> None:
        if self._listener.ends_by_exception:
            self._listener.cause = signal.Signals(number).name  # the signal thread may not have read it yet
            raise SystemExit(ExitCode.OK)

    def _listen(self) -> None:
        while True:
            for number in os.read(self._read_end, 64):
                if number in NUMBERS:
                    self._listener.stop_requested(signal.Signals(number).name)
