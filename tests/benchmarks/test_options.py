import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from options import DEMO_MODEL, default_model, read_options
from peers import Peer


@pytest.fixture(autouse=True)
def same_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("flag", "value", "reason"),
    [
        ("--rounds", "0", "must be a whole number from 1 on, got 0"),
        ("--rounds", "x", "must be a whole number from 1 on, got x"),
        ("--repeats", "-1", "must be a whole number from 0 on, got -1"),
        ("--scale", "0", "must be above 0 and at most 1, got 0"),
        ("--scale", "x", "must be above 0 and at most 1, got x"),
        ("--scale", "-1", "must be above 0 and at most 1, got -1"),
        ("--scale", "nan", "must be above 0 and at most 1, got nan"),
        ("--scale", "2", "must be above 0 and at most 1, got 2"),
        ("--set", "max-num-seqs", "expected NAME=VALUE"),
    ],
)
def test_a_flag_that_measures_nothing_is_refused_before_anything_starts(
    flag: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark", f"{flag}={value}"])
    with pytest.raises(SystemExit) as ended:
        read_options("", ["line"])
    assert ended.value.code == 2
    assert flag in (message := capsys.readouterr().err) and reason in message


def test_the_model_is_that_of_the_first_peer_that_has_one() -> None:
    router, vllm = Peer("smg", Path("/routers")), Peer("vllm", Path("/peers"))
    assert default_model((router, vllm)) == "file:///peers/smollm2-135m"
    assert default_model((router,)) == default_model(()) == DEMO_MODEL
