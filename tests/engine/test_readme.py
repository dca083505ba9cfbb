"""engine/README.md says what the code does."""

from pathlib import Path

import pytest

from stoker_engine.core.engine_metrics import METRICS, PHASE, PHASE_HELP, EngineMetric

README = (Path(__file__).parents[2] / "engine" / "README.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in README.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_of_the_engine_has_a_line(metric: EngineMetric) -> None:
    assert [f"`{metric.name}`", metric.kind.value, metric.help.rstrip(".")] in ROWS


def test_the_phases_have_a_line() -> None:
    assert [f"`{PHASE}`{{`phase`}}", "gauge", PHASE_HELP.rstrip(".")] in ROWS


def test_names_end_in_their_units() -> None:
    timed = [metric.name for metric in METRICS if "age" in metric.name.split("_")]
    assert timed and all(name.endswith("_seconds") for name in timed)
