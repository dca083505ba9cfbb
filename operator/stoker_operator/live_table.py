"""The live table of `stoker up` on a terminal; the programs' lines scroll above it."""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stoker_operator.display import ReplicaRow, log_prefix

_STYLES = {"ready": "green", "failed": "red", "restarting": "red", "draining": "yellow"}


class LiveDisplay:
    """A rich table that is drawn anew at each update."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(build_table([]), console=console, auto_refresh=False, transient=False)
        self._draw(lambda: self._live.start(refresh=True))

    def output(self, replica: str, component: str, line: str) -> None:
        text = Text(log_prefix(replica, component) + " ", style="dim") + Text.from_ansi(line)
        self._draw(lambda: self._console.print(text, soft_wrap=True))

    def note(self, text: str) -> None:
        self._draw(lambda: self._console.print(Text(text, style="bold"), soft_wrap=True))

    def update(self, rows: Sequence[ReplicaRow]) -> None:
        self._draw(lambda: self._live.update(build_table(rows), refresh=True))

    def close(self) -> None:
        self._draw(self._live.stop)

    def _draw(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError:
            return  # the terminal is gone: nobody reads it


def build_table(rows: Sequence[ReplicaRow]) -> Table:
    """The table, a line for each replica."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("NAME", "REPLICA", "PHASE", "RUN/WAIT", "TOKENS/S", "KV", "URL"):
        table.add_column(heading, justify="left" if heading in ("NAME", "PHASE", "URL") else "right")
    for row in rows:
        table.add_row(Text(row.title), str(row.index), _phase(row), *_numbers(row), Text(row.url))
    return table


def _phase(row: ReplicaRow) -> Text:
    text = row.phase if row.progress is None else f"{row.phase} {row.progress:.0%}"
    return Text(f"{text}: {row.detail}" if row.detail else text, style=_STYLES.get(row.phase, ""))


def _numbers(row: ReplicaRow) -> tuple[str, str, str]:
    requests = "–" if row.num_running is None else f"{row.num_running}/{row.num_waiting}"
    rate = "–" if row.tokens_per_second is None else f"{row.tokens_per_second:.1f}"
    return requests, rate, "–" if row.kv_cache_usage is None else f"{row.kv_cache_usage:.0%}"
