import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Start = Callable[..., Any]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_one_question_is_answered_and_everything_drains(start_supervisor: Start) -> None:
    run = start_supervisor("What is the capital of France?")
    code, output = run.finish()
    assert code == 0
    assert "What is the capital of France?\nParis.\n" in output
    assert "api asked demo-model at temperature 0" in run.events
    assert not any(is_alive(pid) for pid in [*run.pids("api"), *run.pids("engine")])


def test_the_engine_is_told_to_stop_only_when_the_api_has_ended(start_supervisor: Start) -> None:
    run = start_supervisor()
    run.wait_until_ready()
    run.process.send_signal(signal.SIGTERM)
    assert run.finish()[0] == 0
    assert run.events[-4:] == ["api SIGTERM 1", "api ended", "engine SIGTERM", "engine ended"]


def test_an_engine_that_dies_is_started_again_at_once_and_the_api_stays(start_supervisor: Start) -> None:
    run = start_supervisor()
    run.wait_until_ready()
    os.kill(run.pids("engine")[0], signal.SIGKILL)
    run.wait_until_event("engine started", count=2)
    run.process.send_signal(signal.SIGINT)
    code, output = run.finish()
    assert code == 0
    assert "demo/0: engine was killed by SIGKILL (code 137); starting it again at once\n" in output
    assert run.events.count("api started") == 1


def test_an_api_that_dies_is_started_again_and_the_engine_stays(start_supervisor: Start) -> None:
    run = start_supervisor()
    run.wait_until_ready()
    os.kill(run.pids("api")[0], signal.SIGKILL)
    run.wait_until_event("api started", count=2)
    run.process.send_signal(signal.SIGTERM)
    assert run.finish()[0] == 0
    assert run.events.count("engine started") == 1


@pytest.mark.fault("F8")
def test_a_second_signal_aborts_and_sets_the_exit_code(start_supervisor: Start) -> None:
    run = start_supervisor(behavior="stubborn")
    run.wait_until_ready()
    run.process.send_signal(signal.SIGINT)
    run.wait_until_event("api SIGTERM 1")
    run.process.send_signal(signal.SIGINT)
    assert run.finish()[0] == 128 + signal.SIGINT
    assert run.events[-5:] == ["api SIGTERM 1", "api SIGTERM 2", "api ended", "engine SIGTERM", "engine ended"]


@pytest.mark.fault("F8")
def test_a_third_signal_kills(start_supervisor: Start) -> None:
    run = start_supervisor(behavior="deaf")
    run.wait_until_ready()
    for count in (1, 2):
        run.process.send_signal(signal.SIGTERM)
        run.wait_until_event(f"api SIGTERM {count}")
    run.process.send_signal(signal.SIGTERM)
    assert run.finish()[0] == 128 + signal.SIGTERM
    assert not any(is_alive(pid) for pid in [*run.pids("api"), *run.pids("engine")])


@pytest.mark.fault("F6")
def test_what_outlives_the_grace_is_killed_and_counts_as_a_failure(start_supervisor: Start) -> None:
    run = start_supervisor(behavior="deaf", grace=0.5)
    run.wait_until_ready()
    run.process.send_signal(signal.SIGTERM)
    code, output = run.finish()
    assert code == 1
    assert "demo/0: not stopped within 0.5 s; killing it" in output
    assert not any(is_alive(pid) for pid in [*run.pids("api"), *run.pids("engine")])


def test_requests_in_flight_are_shown_while_draining(start_supervisor: Start) -> None:
    run = start_supervisor(behavior="stubborn")
    run.wait_until_ready()
    run.process.send_signal(signal.SIGTERM)
    while "draining: " not in (line := run.process.stdout.readline()):
        assert line
    assert line == "demo/0: draining: 3 requests in flight\n"
    run.process.send_signal(signal.SIGTERM)
    run.finish()


def test_what_is_asked_of_several_replicas_goes_to_the_gateway(start_supervisor: Start, gateway_port: int) -> None:
    run = start_supervisor("What is the capital of France?", gateway_port=gateway_port)
    code, output = run.finish()
    assert code == 0
    assert "What is the capital of France?\nParis.\n" in output
    assert "gateway asked demo-model at temperature 0" in run.events
    assert not any(event.startswith("api asked") for event in run.events)
    assert not any(is_alive(pid) for pid in [*run.pids("gateway"), *run.pids("api"), *run.pids("engine")])


def test_a_gateway_that_dies_is_started_again_and_the_replicas_stay(start_supervisor: Start, gateway_port: int) -> None:
    run = start_supervisor(gateway_port=gateway_port)
    run.wait_until_ready()
    os.kill(run.pids("gateway")[0], signal.SIGKILL)
    run.wait_until_event("gateway started", count=2)
    run.process.send_signal(signal.SIGTERM)
    code, output = run.finish()
    assert code == 0
    assert "gateway was killed by SIGKILL (code 137); starting it again at once\n" in output
    assert run.events.count("api started") == 1


def test_a_gateway_has_its_signals_with_the_replicas(start_supervisor: Start, gateway_port: int) -> None:
    run = start_supervisor(behavior="stubborn", gateway_port=gateway_port)
    run.wait_until_ready()
    for count in (1, 2):
        run.process.send_signal(signal.SIGTERM)
        run.wait_until_event(f"gateway SIGTERM {count}")
    assert run.finish()[0] == 128 + signal.SIGTERM
    assert run.events.count("gateway ended") == 1


def test_a_gateway_that_outlives_the_grace_is_killed_and_counts_as_a_failure(start_supervisor: Start, gateway_port: int) -> None:
    run = start_supervisor(behavior="deaf", grace=0.5, gateway_port=gateway_port)
    run.wait_until_ready()
    run.process.send_signal(signal.SIGTERM)
    code, output = run.finish()
    assert code == 1
    assert "gateway: not stopped within 0.5 s; killing it" in output


def test_a_model_that_cannot_be_loaded_ends_a_question_with_the_engines_words(start_supervisor: Start) -> None:
    code, output = start_supervisor("What is the capital of France?", engine_exit_code=4, phase="loading").finish()
    assert code == 1
    assert "demo/0 cannot become ready: engine ended with code 4: no tensor lm_head\n" in output


def test_an_engine_that_keeps_failing_ends_a_question(start_supervisor: Start) -> None:
    run = start_supervisor("What is the capital of France?", engine_exit_code=1, phase="loading")
    code, output = run.finish()
    assert code == 1
    assert run.events.count("engine started") == 3
    assert "demo/0 cannot become ready: engine ended with code 1: the last line\n" in output


def test_a_question_that_is_interrupted_before_its_answer_says_so_in_the_exit_code(start_supervisor: Start) -> None:
    run = start_supervisor("What is the capital of France?", phase="loading")
    run.wait_until_event("api started")
    run.wait_until_event("engine started")
    run.process.send_signal(signal.SIGINT)
    assert run.finish()[0] == 128 + signal.SIGINT


def test_without_a_termination_message_the_last_line_speaks(start_supervisor: Start) -> None:
    run = start_supervisor(engine_exit_code=2)
    run.wait_until_event("engine started", count=2)
    run.process.send_signal(signal.SIGTERM)
    assert "demo/0: engine ended with code 2: the last line; starting it again" in run.finish()[1]


@pytest.mark.property("P54")
@pytest.mark.fault("B1")
def test_programs_learn_that_their_supervisor_was_killed(start_supervisor: Start) -> None:
    run = start_supervisor()
    run.wait_until_ready()
    run.process.kill()
    run.wait_until_event("api orphaned")
    run.wait_until_event("engine orphaned")
    run.wait_until(lambda: not any(is_alive(pid) for pid in [*run.pids("api"), *run.pids("engine")]))
