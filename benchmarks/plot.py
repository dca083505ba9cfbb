"""FILE.json…: draws results of serve.py as FILE.png: throughput over concurrency, and latency over load."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report import Document, read_document
from rounds import OURS, Line

TITLE = re.compile(r"HTTP, concurrency (\d+)(, shared prefix)?")
COLORS = {OURS: "tab:orange", "vllm": "tab:blue"}
LATENCIES = {"ttft_p50": "time to first token, p50 (ms)", "tpot_p50": "time per output token, p50 (ms)"}


def plot_serve(path: Path) -> Path:
    """Writes the plot beside the document and returns its path."""
    document = read_document(path)
    figure = Figure(figsize=(14, 4.5), layout="constrained")
    throughput, *latencies = figure.subplots(1, 1 + len(LATENCIES))
    for shared in (False, True):
        lines = {int(match[1]): line for line in document.lines if (match := TITLE.match(line.name)) and bool(match[2]) == shared}
        if lines:
            _plot_throughput(throughput, lines, shared=shared)
            for axes, (metric, label) in zip(latencies, LATENCIES.items(), strict=True):
                _plot_latency(axes, list(lines.values()), metric, label, shared=shared)
    for axes in (throughput, *latencies):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.suptitle(_title(document), fontsize="small")
    picture = path.with_suffix(".png")
    figure.savefig(picture, dpi=110)
    sys.stdout.write(f"drawn in {picture}\n")
    return picture


def _plot_throughput(axes: Axes, lines: dict[int, Line], *, shared: bool) -> None:
    for name in _contestants(list(lines.values())):
        points = [(concurrency, line.median(name, "output")) for concurrency, line in sorted(lines.items())]
        axes.plot(*zip(*points, strict=True), label=_label(name, shared=shared), color=COLORS.get(name), linestyle=_style(shared=shared), marker="o")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(lines), [str(concurrency) for concurrency in sorted(lines)])
    axes.set_xlabel("concurrent requests")
    axes.set_ylabel("output tokens per second")


def _plot_latency(axes: Axes, lines: Sequence[Line], metric: str, label: str, *, shared: bool) -> None:
    for name in _contestants(lines):
        points = sorted((line.median(name, "requests"), line.median(name, metric)) for line in lines)
        axes.plot(*zip(*points, strict=True), label=_label(name, shared=shared), color=COLORS.get(name), linestyle=_style(shared=shared), marker="o")
    axes.set_xlabel("requests per second")
    axes.set_ylabel(label)


def _contestants(lines: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(name for line in lines for each in line.rounds for name in each.results))


def _label(name: str, *, shared: bool) -> str:
    return f"{name}, shared prefix" if shared else name


def _style(*, shared: bool) -> str:
    return "--" if shared else "-"


def _title(document: Document) -> str:
    peers = "".join(f", beside {version}" for version in document.peers.values())
    unstable = [line.name for line in document.lines if not line.is_stable]
    note = f"\nunstable, not judged: {'; '.join(unstable)}" if unstable else ""
    return f"{document.settings['model'].rpartition('/')[2]}, 128 in / 64 out{peers}\n{document.machine.summary}{note}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        plot_serve(Path(name))
