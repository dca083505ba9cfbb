import logging

import pytest

from stoker_engine import drop_log
from stoker_engine.drop_log import DropLog


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(drop_log.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.property("P52")
def test_a_flood_of_garbage_is_one_line_and_then_a_count(caplog: pytest.LogCaptureFixture, clock: list[float]) -> None:
    drops = DropLog(logging.getLogger("test"))
    for number in range(1000):
        drops.dropped("a frame", f"it is number {number}")
    assert [record.getMessage() for record in caplog.records] == ["dropped a frame: it is number 0"]
    clock[0] += drop_log.INTERVAL_SECONDS
    drops.dropped("a frame", "it is late")
    drops.dropped("a frame", "it is later")
    assert [record.getMessage() for record in caplog.records][1:] == ["dropped a frame: it is late (999 more since the last such line)"]


def test_a_reason_as_long_as_a_frame_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    DropLog(logging.getLogger("test")).dropped("a frame", "x" * 1_000_000)
    assert len(caplog.records[0].getMessage()) < 1000
