"""One table for people and one JSON file for machines: each row is one metric of a line, ours, each peer's, the ratios and the share of the limit."""

import json
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from machine import Facts, read_facts
from rounds import OURS, Line, Round

RESULTS = Path(__file__).parent / "results"
"""Kept in git: what full runs measured."""
TRIALS = Path(__file__).parents[1] / "build" / "benchmarks"
"""What runs with --scale write: the figures mean nothing."""


@dataclass(slots=True, frozen=True)
class Metric:
    """One number that the runs of a line have under `key`. `limit` is its best possible value on the machine as a round found it, for us alone where
    `limits_peers` is False."""

    key: str
    name: str
    unit: str
    better: Literal["higher", "lower"]
    limit: Callable[[Round], float] | None = None
    limits_peers: bool = True


class Row(msgspec.Struct, frozen=True):
    """A metric of a line: medians by contestant; how many times better than each peer we are; the median share of the limit by contestant."""

    line: str
    name: str
    unit: str
    better: Literal["higher", "lower"]
    values: dict[str, float]
    times_better: dict[str, float]
    of_limit: dict[str, float]
    bandwidth_before: float
    bandwidth_after: float
    is_judged: bool
    num_attempts: int


class Document(msgspec.Struct, frozen=True):
    """What a run leaves behind. `peers` are their versions; `settings` what differs from the defaults, of the engine and of the run."""

    benchmark: str
    machine: Facts
    peers: dict[str, str]
    settings: dict[str, str]
    rows: list[Row]
    lines: list[Line]


class Report:
    """The result of one benchmark as it grows: written after every line, so that an end before the last one loses none."""

    def __init__(self, benchmark: str, folder: Path, peers: dict[str, str], settings: dict[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._document = Document(benchmark, read_facts(), peers, settings, [], [])
        self._path = folder / f"{benchmark}-{re.sub('[-:]|[+].*', '', self._document.machine.date)}Z.json"

    def add(self, line: Line, metrics: Sequence[Metric]) -> None:
        """Prints the line and writes all so far."""
        rows = [row(line, metric) for metric in metrics]
        self._document.rows.extend(rows)
        self._document.lines.append(line)
        self._path.write_text(json.dumps(msgspec.to_builtins(self._document), indent=1) + "\n", encoding="utf-8")
        sys.stderr.write(table(rows) + "\n")

    def finish(self) -> Path:
        """Prints the whole table and returns the file."""
        sys.stdout.write(f"{table(self._document.rows)}\n{self._document.machine.summary}\nwritten to {self._path}\n")
        return self._path


def row(line: Line, metric: Metric) -> Row:
    """`metric` of every contestant that has it."""
    contestants = list(dict.fromkeys(name for each in line.rounds for name in each.results))
    medians = {name: line.median(name, metric.key) for name in contestants}
    ratios = {name: line.times_better(name, metric.key, higher_is_better=metric.better == "higher") for name in contestants if name != OURS}
    shares = {name: _share_of_limit(line, name, metric) for name in contestants if name == OURS or metric.limits_peers}
    return Row(
        line=line.name,
        name=metric.name,
        unit=metric.unit,
        better=metric.better,
        values=_known(medians),
        times_better=_known(ratios),
        of_limit=_known(shares),
        bandwidth_before=line.rounds[0].before.bandwidth,
        bandwidth_after=line.rounds[-1].after.bandwidth,
        is_judged=line.is_stable,
        num_attempts=line.num_attempts,
    )


def _known(values: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def _share_of_limit(line: Line, contestant: str, metric: Metric) -> float | None:
    if metric.limit is None:
        return None
    pairs = [(each.results[contestant][metric.key], metric.limit(each)) for each in line.rounds if metric.key in each.results.get(contestant, {})]
    return statistics.median(value / limit if metric.better == "higher" else limit / value for value, limit in pairs) if pairs else None


def read_document(path: Path) -> Document:
    return msgspec.json.decode(path.read_bytes(), type=Document)


def table(rows: Sequence[Row]) -> str:
    """Ours, our share of the limit, each peer and how many times better we are; the probes, the rounds taken, and a mark where the line is unstable."""
    peers = list(dict.fromkeys(name for each in rows for name in each.values if name != OURS))
    lines = [["", "unit", OURS, "of limit", *(cell for peer in peers for cell in (peer, "×")), "GB/s", "rounds", ""]]
    for each in rows:
        compared = [cell for peer in peers for cell in (format_value(each.values.get(peer)), format_times(each.times_better.get(peer)))]
        share = f"{each.of_limit[OURS]:.0%}" if OURS in each.of_limit else "–"
        bandwidth = f"{each.bandwidth_before:.0f}–{each.bandwidth_after:.0f}"
        mark = "" if each.is_judged else "unstable"
        lines.append([f"{each.line}: {each.name}", each.unit, format_value(each.values.get(OURS)), share, *compared, bandwidth, str(each.num_attempts), mark])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(_aligned(line, widths) for line in lines)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """The first to the left, the others to the right."""
    padded = [cells[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))]
    return "  ".join(padded).rstrip()


def format_value(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


def format_times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
