import json
from pathlib import Path

import pytest

from stoker_engine.termination import MAX_BYTES, TerminationMessage, read_termination_message, write_termination_message


def test_a_message_is_one_line_of_json_that_can_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "message"
    message = TerminationMessage(reason="Drained", phase="draining", in_flight_at_start=3, completed=2, aborted=1, seconds=1.5)
    write_termination_message(str(path), message)
    assert json.loads(path.read_text()) == {"reason": "Drained", "phase": "draining", "inFlightAtStart": 3, "completed": 2, "aborted": 1, "seconds": 1.5}
    assert read_termination_message(str(path)) == message


@pytest.mark.parametrize("character", ["x", "é", "😀", '"'])
def test_a_long_error_is_cut_to_what_a_kubelet_keeps(tmp_path: Path, character: str) -> None:
    path = tmp_path / "message"
    write_termination_message(str(path), TerminationMessage(reason="EngineFailed", phase="ready", last_error=character * 5000))
    assert len(path.read_bytes()) <= MAX_BYTES
    message = read_termination_message(str(path))
    assert message is not None
    assert message.last_error.endswith("…")


def test_a_path_that_cannot_be_written_is_only_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_termination_message(str(tmp_path / "absent" / "message"), TerminationMessage(reason="Drained", phase="ready"))
    assert "could not write the termination message" in caplog.text


def test_no_message_reads_as_none(tmp_path: Path) -> None:
    assert read_termination_message(str(tmp_path / "absent")) is None
