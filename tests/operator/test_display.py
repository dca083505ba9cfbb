import asyncio
import io
import sys
from collections.abc import Callable

import pytest
from rich.console import Console

from stoker_operator.__main__ import main
from stoker_operator.api_answers import Startup
from stoker_operator.display import PlainDisplay, ReplicaRow
from stoker_operator.live_table import LiveDisplay, build_table
from stoker_operator.observation import Load, Observation
from stoker_operator.plan import ProgramPlan, ReplicaPlan
from stoker_operator.replica import Replica
from stoker_operator.rows import build_row

MakeReplica = Callable[[], Replica]

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


@pytest.fixture
def make_replica() -> MakeReplica:
    def make() -> Replica:
        api, engine = (ProgramPlan(component, ("true",), f"/nowhere/{component}") for component in ("api", "engine"))
        plan = ReplicaPlan(title="demo", index=0, served_name="demo", host="127.0.0.1", port=1, grace=5.0, api=api, engine=engine)
        return Replica(plan, (), PlainDisplay())

    return make


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


@pytest.mark.parametrize("text", ["élan 😀", "/models/\udcff"])
def test_a_terminal_that_cannot_show_a_character_stops_nobody(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding="ascii") for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    with pytest.raises(SystemExit):
        main(["crd"])
    display = PlainDisplay()
    display.note(text)
    display.output("smollm2/0", "engine", text)
    assert all(stream.errors == "replace" for stream in streams.values())


@pytest.mark.parametrize(
    ("num_running", "num_waiting", "detail"), [(0, 0, "0 requests in flight"), (1, 0, "1 request in flight"), (1, 1, "2 requests in flight")]
)
async def test_a_drain_says_how_many_requests_are_in_flight(make_replica: MakeReplica, num_running: int, num_waiting: int, detail: str) -> None:
    replica = make_replica()
    replica.state.draining = True
    assert build_row(replica).detail == ""
    replica.state.observation = Observation(Startup(phase="ready"), Load(num_running, num_waiting, 0.0, 0.0))
    assert build_row(replica).detail == detail


async def test_a_drain_begins_without_the_number_that_was_true_before_it(make_replica: MakeReplica) -> None:
    replica = make_replica()
    replica.state.observation = Observation(Startup(phase="ready"), Load(1, 0, 0.0, 0.0))
    draining = asyncio.create_task(replica.drain())
    await asyncio.sleep(0)
    row = build_row(replica)
    assert (row.phase, row.detail) == ("draining", "")
    replica.api.ended.set()
    replica.engine.ended.set()
    await draining
