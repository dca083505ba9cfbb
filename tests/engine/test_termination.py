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


@pytest.mark.parametrize("character", ["x", "é", "😀", '"', "\n", "\x01", 'a"é😀\n'])
@pytest.mark.parametrize("num_characters", [300, 900, 1900, 2000, 2100, 5000, 100_000])
def test_a_long_error_keeps_as_much_as_a_kubelet_does(tmp_path: Path, character: str, num_characters: int) -> None:
    path = tmp_path / "message"
    text = character * (num_characters // len(character))
    write_termination_message(str(path), TerminationMessage(reason="EngineFailed", phase="ready", last_error=text))
    content = path.read_bytes()
    message = read_termination_message(str(path))
    assert message is not None
    assert len(content) <= MAX_BYTES
    assert content.count(b"\n") == 1
    if message.last_error != text:
        assert text.startswith(message.last_error.removesuffix("…"))
        assert message.last_error.endswith("…")
        assert len(content) > MAX_BYTES - 6  # the next character, escaped, would not fit


def test_most_of_the_file_is_the_error(tmp_path: Path) -> None:
    path = tmp_path / "message"
    write_termination_message(str(path), TerminationMessage(reason="EngineFailed", phase="ready", last_error="é" * 50_000, aborted=3, seconds=1.234))
    message = read_termination_message(str(path))
    assert message is not None
    assert len(message.last_error.encode()) > 1900


def test_an_error_that_fits_to_the_last_byte_is_kept_whole(tmp_path: Path) -> None:
    path = tmp_path / "message"
    empty = len('{"reason":"R","phase":"p","lastError":""}\n')
    for excess in (0, 1):
        text = "x" * (MAX_BYTES - empty + excess)
        write_termination_message(str(path), TerminationMessage(reason="R", phase="p", last_error=text))
        message = read_termination_message(str(path))
        assert message is not None
        assert (message.last_error == text) == (excess == 0)
        assert len(path.read_bytes()) == MAX_BYTES


def test_text_that_is_not_unicode_is_written_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "message"
    write_termination_message(str(path), TerminationMessage(reason="BadConfig", phase="starting", last_error="no file /a\udcff"))
    assert json.loads(path.read_text())["lastError"] == "no file /a?"


def test_a_path_that_cannot_be_written_is_only_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_termination_message(str(tmp_path / "absent" / "message"), TerminationMessage(reason="Drained", phase="ready"))
    assert "could not write the termination message" in caplog.text


def test_no_message_reads_as_none(tmp_path: Path) -> None:
    assert read_termination_message(str(tmp_path / "absent")) is None
