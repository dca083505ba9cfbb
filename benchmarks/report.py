"""One table for people and one JSON file for machines: each row is a measurement of ours, of the peer where there is one, and their ratio."""

import json
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import msgspec

from bandwidth import Bracketed

RESULTS = Path(__file__).parent / "results"


class Figure(msgspec.Struct, frozen=True):
    """One measured value and the read bandwidth (GB/s) before and after it."""

    value: float
    bandwidth_before: float
    bandwidth_after: float


class Row(msgspec.Struct, frozen=True):
    """One line of a benchmark. `better` says which direction is good."""

    name: str
    unit: str
    better: Literal["higher", "lower"]
    stoker: Figure
    peer: Figure | None = None

    @property
    def ratio(self) -> float | None:
        """How many times better than the peer; above 1 is better."""
        if self.peer is None:
            return None
        return self.stoker.value / self.peer.value if self.better == "higher" else self.peer.value / self.stoker.value


def figure(measured: Bracketed[float]) -> Figure:
    return Figure(measured.value, measured.before, measured.after)


def publish(benchmark: str, rows: Sequence[Row], peer_name: str | None) -> None:
    """Prints the table and writes it to `results/<benchmark>-<time>.json`."""
    sys.stdout.write(_table(rows, peer_name or "peer") + "\n")
    now = datetime.now(UTC)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{benchmark}-{now:%Y%m%dT%H%M%SZ}.json"
    document = {
        "benchmark": benchmark,
        "time": now.isoformat(timespec="seconds"),
        "machine": {"processor": _processor(), "python": platform.python_version(), "torch": version("torch"), "stoker": version("stoker")},
        "peer": peer_name,
        "rows": [{**msgspec.to_builtins(row), "ratio": row.ratio} for row in rows],
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(f"written to {path}\n")


def _table(rows: Sequence[Row], peer_name: str) -> str:
    lines = [("", "unit", "stoker", peer_name, "ratio", "GB/s stoker", f"GB/s {peer_name}")]
    for row in rows:
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}x"
        lines.append((row.name, row.unit, _value(row.stoker), _value(row.peer), ratio, _bandwidth(row.stoker), _bandwidth(row.peer)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]) for line in lines)


def _value(figure: Figure | None) -> str:
    return "-" if figure is None else f"{figure.value:,.1f}" if abs(figure.value) < 1000 else f"{figure.value:,.0f}"


def _bandwidth(figure: Figure | None) -> str:
    return "-" if figure is None else f"{figure.bandwidth_before:.0f}-{figure.bandwidth_after:.0f}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
