import io

import pytest
from rich.console import Console

from stoker_operator.display import PlainDisplay, ReplicaRow
from stoker_operator.live_table import LiveDisplay, build_table

READY = ReplicaRow(
    title="smollm2",
    index=0,
    phase="ready",
    detail="",
    url="http://127.0.0.1:8080",
    num_running=2,
    num_waiting=1,
    tokens_per_second=123.44,
    kv_cache_usage=0.5,
)
LOADING = ReplicaRow(title="team/other", index=1, phase="loading", detail="", url="http://127.0.0.1:8081", progress=0.43)


def test_the_table_has_a_line_for_each_replica() -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(build_table([READY, LOADING]))
    assert isinstance(console.file, io.StringIO)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert lines == [
        ["NAME", "REPLICA", "PHASE", "RUN/WAIT", "TOKENS/S", "KV", "URL"],
        ["smollm2", "0", "ready", "2/1", "123.4", "50%", "http://127.0.0.1:8080"],
        ["team/other", "1", "loading", "43%", "–", "–", "–", "http://127.0.0.1:8081"],
    ]


def test_a_programs_line_is_shown_as_it_is_above_the_table() -> None:
    console = Console(file=io.StringIO(), width=200, force_terminal=True, color_system=None)
    display = LiveDisplay(console)
    display.update([READY])
    display.output("smollm2/0", "engine", "[bold]not markup[/bold] \x1b[31mred\x1b[0m")
    display.close()
    assert isinstance(console.file, io.StringIO)
    assert "smollm2/0 engine| [bold]not markup[/bold] red" in console.file.getvalue()


def test_plain_output_has_one_line_per_change(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay()
    for rows in ([LOADING], [LOADING], [LOADING, READY], [LOADING, READY]):
        display.update(rows)
    display.output("smollm2/0", "api", "started")
    captured = capsys.readouterr()
    assert captured.out == "team/other/1: loading\nsmollm2/0: ready\n"
    assert captured.err == "smollm2/0 api| started\n"


class _Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_reader_that_is_gone_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", _Closed())
    PlainDisplay().note("nobody reads this")
