"""The termination message: one JSON line that a supervisor (a kubelet or `stoker up`) reads after the process has ended."""

import bisect
import logging
from pathlib import Path

import msgspec

from stoker_engine.early_stop import stop_at_once_on_signals

logger = logging.getLogger(__name__)

MAX_BYTES = 2048


class TerminationMessage(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Why the process ended, where it was, and what became of the requests in flight. `reason` is CamelCase (`Drained`, `ModelLoadFailed`)."""

    reason: str
    phase: str
    last_error: str = ""
    in_flight_at_start: int = 0
    completed: int = 0
    aborted: int = 0
    seconds: float = 0.0


def write_termination_message(path: str, message: TerminationMessage) -> None:
    """Writes at most 2 KiB; an unwritable path is logged, never raised: the process is ending for a reason of its own."""
    # File names that are not UTF-8 come as lone surrogates, which no JSON can hold.
    text = message.last_error.encode(errors="replace").decode()
    line = _line(message, text)
    if len(line) > MAX_BYTES:
        too_long = bisect.bisect_left(range(len(text)), True, key=lambda length: len(_line(message, text[:length] + "…")) > MAX_BYTES)
        line = _line(message, text[: max(0, too_long - 1)] + "…")
    try:
        Path(path).write_bytes(line)
    except OSError as error:
        logger.warning("could not write the termination message to %s: %s", path, error)


def _line(message: TerminationMessage, last_error: str) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(message, last_error=last_error)) + b"\n"


def read_termination_message(path: str) -> TerminationMessage | None:
    """The message in `path`; None if the process wrote none."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=TerminationMessage)
    except (OSError, msgspec.MsgspecError):
        return None


def stop_with_message_on_signals(path: str) -> None:
    """Until the program has begun its work, a signal to stop ends it at once, with this message."""
    message = TerminationMessage(reason="Aborted", phase="starting")
    stop_at_once_on_signals(lambda: write_termination_message(path, message))
