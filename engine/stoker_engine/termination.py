"""The termination message: one JSON line that a supervisor (a kubelet or `stoker up`) reads after the process has ended."""

import logging
from pathlib import Path

import msgspec

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
    text = msgspec.json.encode(message)
    if len(text) > MAX_BYTES:
        excess = len(text) - MAX_BYTES + len("…".encode())
        kept = message.last_error.encode()[: max(0, len(message.last_error.encode()) - excess * 2)].decode(errors="ignore")
        text = msgspec.json.encode(msgspec.structs.replace(message, last_error=kept + "…"))
    try:
        Path(path).write_bytes(text + b"\n")
    except OSError as error:
        logger.warning("could not write the termination message to %s: %s", path, error)


def read_termination_message(path: str) -> TerminationMessage | None:
    """The message in `path`; None if the process wrote none."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=TerminationMessage)
    except (OSError, msgspec.MsgspecError):
        return None
