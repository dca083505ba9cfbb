import signal
import socket
import subprocess
import sys

import pytest

from stoker_engine.worker.grammar_server import affordable_bytes

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
