"""What `stoker up` shows: a live table on a terminal, one line per change elsewhere."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One replica as people read it. `detail` explains the phase; the numbers are None while the api has none."""

    title: str
    index: int
    phase: str
    detail: str
    url: str
    progress: float | None = None
    num_running: int | None = None
    num_waiting: int | None = None
    tokens_per_second: float | None = None
    kv_cache_usage: float | None = None


class Display(Protocol):
    """Where the supervisor's news goes. None of its methods raises: whoever read it may be gone, and the replicas go on."""

    def output(self, replica: str, component: str, line: str) -> None:
        """A line that a replica's program wrote."""

    def note(self, text: str) -> None:
        """A line of the supervisor's own."""

    def update(self, rows: Sequence[ReplicaRow]) -> None:
        """How all replicas are now."""

    def close(self) -> None:
        """Nothing follows."""


def log_prefix(replica: str, component: str) -> str:
    return f"{replica} {component}|"


class PlainDisplay:
    """Notes and changes on standard output, the programs' lines on standard error."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, int], tuple[str, str]] = {}

    def output(self, replica: str, component: str, line: str) -> None:
        _write(sys.stderr, f"{log_prefix(replica, component)} {line}")

    def note(self, text: str) -> None:
        _write(sys.stdout, text)

    def update(self, rows: Sequence[ReplicaRow]) -> None:
        for row in rows:
            key, now = (row.title, row.index), (row.phase, row.detail)
            if self._shown.get(key) != now:
                self._shown[key] = now
                self.note(f"{row.title}/{row.index}: {row.phase}" + (f": {row.detail}" if row.detail else ""))

    def close(self) -> None:
        """There is nothing to undo."""


def _write(stream: TextIO, line: str) -> None:
    try:
        stream.write(line + "\n")
        stream.flush()
    except OSError:
        return  # a closed pipe or terminal: nobody reads it
