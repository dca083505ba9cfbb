"""The process in which grammars are compiled: `python -m stoker_engine.worker.grammar_server FD MODEL VOCAB_SIZE CPU_SECONDS MEMORY_BYTES`.

It loads the compiler once and forks for each job, so that a job can run out of time, memory or stack, and nothing is lost but its own child. A job comes as
a socket over the socket FD: the kind and the value in it, up to the end of file; the answer is STARTED, then OK or REFUSED and what there is to say,
SHORT_OF_MEMORY, or nothing where a limit is reached.
"""

import ctypes
import fcntl
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from stoker_engine.worker.cgroup import available_memory

STARTED, SHORT_OF_MEMORY, OK, REFUSED = b"s", b"m", b"+", b"-"
"""SHORT_OF_MEMORY: what was left was not enough, and less than MEMORY_BYTES."""
TOKENIZER = "tokenizer"
"""The kind of the job that asks for the vocabulary itself."""
WALL_SECONDS_PER_CPU_SECOND = 6
"""A child that gets little of a busy machine may take longer, but not for ever."""
NICENESS = 10
MAX_BUFFERED_BYTES = 1 << 16
NO_MEMORY = "bad_alloc"
"""In the words of the compiler's errors, of whichever type."""

_PR_SET_PDEATHSIG = 1
_BINDINGS = ctypes.CDLL(None)


class Job(msgspec.Struct, array_like=True):
    kind: str
    value: str


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    model, vocab_size, cpu_seconds, memory_bytes = Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the children need nobody who waits for them
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):  # a sandbox may have no such file
        Path("/proc/self/oom_score_adj").write_text("1000")  # where memory runs out, a grammar goes before the engine
    from stoker_engine.worker.grammar_compiler import GrammarCompiler  # torch, and the vocabulary

    compiler = GrammarCompiler(model, vocab_size)
    os.nice(NICENESS)  # from here on: the first grammar waits for all the above
    while True:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not descriptors:  # the engine is gone
            os._exit(0)
        if os.fork() == 0:
            try:
                control.close()
                without_memory = _limit(cpu_seconds, memory_bytes)
                serve(socket.socket(fileno=descriptors[0]), compiler.run, without_memory)
            finally:
                os._exit(0)  # whatever happened: a copy of the server has nothing to tidy up
        os.close(descriptors[0])


def affordable_bytes(memory_bytes: int, left_bytes: int | None) -> int:
    """For one of two children: under a memory limit, reaching it would end the engine with them. left_bytes: None without one."""
    return memory_bytes if left_bytes is None else min(memory_bytes, left_bytes // 3)


def _limit(cpu_seconds: float, memory_bytes: int) -> bytes:
    """The kernel ends a child that takes more, whatever it is doing. Returns the answer where memory runs out."""
    _BINDINGS.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    affordable = affordable_bytes(memory_bytes, available_memory())
    size = pages * resource.getpagesize() + affordable
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    signal.setitimer(signal.ITIMER_REAL, cpu_seconds * WALL_SECONDS_PER_CPU_SECOND)
    return b"" if affordable >= memory_bytes else SHORT_OF_MEMORY


def serve(connection: socket.socket, run: Callable[[str, str], bytes], without_memory: bytes) -> None:
    connection.sendall(STARTED)
    job = msgspec.msgpack.decode(_read_all(connection), type=Job)
    try:
        with _ended_by_close(connection):
            answer = OK + run(job.kind, job.value)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error) or type(error).__name__
        answer = without_memory if NO_MEMORY in reason else REFUSED + reason.encode(errors="replace")
    except MemoryError:
        answer = without_memory
    connection.sendall(answer)
    connection.close()


@contextmanager
def _ended_by_close(connection: socket.socket) -> Iterator[None]:
    """The engine closes the connection where nobody waits for the answer any more: SIGIO, unhandled, ends this child on the spot."""
    flags = fcntl.fcntl(connection, fcntl.F_GETFL)
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETFL, flags | os.O_ASYNC)
    try:
        yield
    finally:
        fcntl.fcntl(connection, fcntl.F_SETFL, flags)  # sending raises it, too


def _read_all(connection: socket.socket) -> bytes:
    chunks = []
    while chunk := connection.recv(MAX_BUFFERED_BYTES):
        chunks.append(chunk)
    return b"".join(chunks)


if __name__ == "__main__":
    main()
