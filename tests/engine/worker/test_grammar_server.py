import signal
import socket
import subprocess
import sys

import msgspec
import pytest

from stoker_engine.errors import EngineBusyError
from stoker_engine.worker.grammar_process import CompileLimits, GrammarRefusedError, read_answer
from stoker_engine.worker.grammar_server import OK, REFUSED, SHORT_OF_MEMORY, STARTED, Job, affordable_bytes

CHILD = """
import socket, sys, time
from stoker_engine.worker.grammar_server import _ended_by_close
connection = socket.socket(fileno=int(sys.argv[1]))
with _ended_by_close(connection):
    sys.stdout.write("begun\\n")
    sys.stdout.flush()
    if sys.argv[2] == "goes on":
        time.sleep(300)
connection.sendall(b"x" * 1_000_000)
"""


def start_child(theirs: socket.socket, what: str) -> "subprocess.Popen[bytes]":
    with theirs:
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(theirs.fileno()), what], pass_fds=[theirs.fileno()], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"begun\n"
    return child


def test_a_job_ends_when_the_engine_closes_its_connection() -> None:
    ours, theirs = socket.socketpair()
    with start_child(theirs, "goes on") as child:
        ours.close()
        assert child.wait(60) == -signal.SIGIO


def test_an_answer_is_sent_whole_however_it_is_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, start_child(theirs, "is over") as child:
        assert sum(len(chunk) for chunk in iter(lambda: ours.recv(1000), b"")) == 1_000_000
        assert child.wait(60) == 0


@pytest.mark.parametrize(("left", "expected"), [(None, 900), (6000, 900), (600, 200), (0, 0)])
def test_two_jobs_at_once_never_take_all_that_a_memory_limit_leaves(left: int | None, expected: int) -> None:
    assert affordable_bytes(900, left) == expected


FAILING = """
import socket, sys
from stoker_engine.worker.grammar_server import SHORT_OF_MEMORY, serve

def run(kind, value):
    raise {"memory": MemoryError(), "library": AttributeError("std::bad_alloc"), "wrong": ValueError("not so")}[kind]

serve(socket.socket(fileno=int(sys.argv[1])), run, SHORT_OF_MEMORY)
"""


@pytest.mark.parametrize(("kind", "answer"), [("memory", SHORT_OF_MEMORY), ("library", SHORT_OF_MEMORY), ("wrong", REFUSED + b"not so")])
def test_a_lack_of_memory_is_no_reason_to_refuse_a_grammar(kind: str, answer: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            child = subprocess.Popen([sys.executable, "-c", FAILING, str(theirs.fileno())], pass_fds=[theirs.fileno()])
        ours.sendall(msgspec.msgpack.encode(Job(kind, "")))
        ours.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: ours.recv(1000), b"")) == STARTED + answer
        assert child.wait(60) == 0


def test_a_client_is_told_to_come_again_where_memory_is_short_and_of_the_limits_where_one_is_reached() -> None:
    limits = CompileLimits()
    assert read_answer(STARTED + OK + b"it", limits) == b"it"
    with pytest.raises(GrammarRefusedError, match="not so"):
        read_answer(STARTED + REFUSED + b"not so", limits)
    with pytest.raises(GrammarRefusedError, match="too complex"):
        read_answer(STARTED, limits)
    with pytest.raises(EngineBusyError, match="try again later"):
        read_answer(STARTED + SHORT_OF_MEMORY, limits)
