"""FinishReason: why a request ended."""

import enum


class FinishReason(enum.IntEnum):
    """Why a request ended; `str()` is what the API shows."""

    STOP = 0
    LENGTH = 1
    ABORT = 2
    ERROR = 3
    REPETITION = 4

    def __str__(self) -> str:
        return self.name.lower()
