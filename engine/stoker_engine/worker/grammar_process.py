"""GrammarProcess: the engine's end of grammar_server.py. Started with the first job; its end comes with the engine's, however that ends."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from stoker_engine.errors import EngineBusyError, EngineError, EngineGenerateError
from stoker_engine.worker.grammar_cache import UnwantedError
from stoker_engine.worker.grammar_server import OK, REFUSED, SHORT_OF_MEMORY, STARTED, WALL_SECONDS_PER_CPU_SECOND, Job

START_SECONDS = 120.0
"""For the server to import the compiler and load the vocabulary: 3 s of an idle CPU."""
CLOSE_SECONDS = 2.0
_CHUNK_BYTES = 1 << 20
_LOOK_SECONDS = 0.1
"""Between two looks whether a grammar is still wanted."""


class GrammarRefusedError(EngineError):
    """The grammar cannot be compiled. The message is the compiler's, or names the limit it ran into."""


class CompileLimits(msgspec.Struct, frozen=True):
    """Of one grammar. CPU time, so that a busy machine refuses none; memory beyond what the compiler has at its start."""

    cpu_seconds: float = 5.0
    memory_bytes: int = 1 << 30
    compiled_bytes: int = 64 << 20


class GrammarProcess:
    """May be called from several threads."""

    def __init__(self, model: Path, vocab_size: int, limits: CompileLimits) -> None:
        self._model = model
        self._vocab_size = vocab_size
        self._limits = limits
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def run(self, kind: str, value: str, is_wanted: Callable[[], bool] = lambda: True) -> bytes:
        """The compiled grammar, serialized. Raises GrammarRefusedError, UnwantedError, EngineBusyError where memory is short, and EngineGenerateError where
        the compiler itself does not run."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                self._hand_over(theirs)
            wall_seconds = START_SECONDS + self._limits.cpu_seconds * WALL_SECONDS_PER_CPU_SECOND
            ours.settimeout(wall_seconds)
            try:
                ours.sendall(msgspec.msgpack.encode(Job(kind, value)))
                ours.shutdown(socket.SHUT_WR)
                ours.settimeout(_LOOK_SECONDS)
                answer = self._read(partial(_receive, ours, time.monotonic() + wall_seconds, is_wanted))
            except OSError as error:  # a timeout is one
                answer = b""
                reason: object = error
            else:
                reason = "it ended"
        if not answer:
            raise EngineGenerateError(f"the grammar compiler does not run: {reason}")
        return read_answer(answer, self._limits)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._end()

    def _read(self, receive: Callable[[], bytes]) -> bytes:
        """The whole answer. Raises GrammarRefusedError where it is too large."""
        chunks: list[bytes] = []
        size = 0
        while chunk := receive():
            chunks.append(chunk)
            size += len(chunk)
            if size > self._limits.compiled_bytes:
                raise GrammarRefusedError(f"it is too large: compiled, it takes more than {self._limits.compiled_bytes >> 20} MiB")
        return b"".join(chunks)

    def _hand_over(self, theirs: socket.socket) -> None:
        with self._lock:
            if self._closed:
                raise EngineGenerateError("the grammar compiler is shut down")
            control = self._control or self._start()
            try:
                socket.send_fds(control, [STARTED], [theirs.fileno()])
            except OSError:  # it has ended: another one may do better
                self._end()
                socket.send_fds(self._start(), [STARTED], [theirs.fileno()])

    def _start(self) -> socket.socket:
        self._control, theirs = socket.socketpair()
        limits = self._limits
        arguments = (theirs.fileno(), self._model, self._vocab_size, limits.cpu_seconds, limits.memory_bytes)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stoker_engine.worker.grammar_server", *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a terminal's Ctrl-C is for the engine
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},  # it forks: it must have no threads
            )
        return self._control

    def _end(self) -> None:
        """It ends by itself when its socket is closed."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


def read_answer(answer: bytes, limits: CompileLimits) -> bytes:
    """The content of the server's answer, which is not empty. Raises GrammarRefusedError, and EngineBusyError where memory is short."""
    verdict, content = answer[1:2], answer[2:]
    if verdict == OK:
        return content
    if verdict == REFUSED:
        raise GrammarRefusedError(content.decode(errors="replace"))
    seconds, mebibytes = limits.cpu_seconds, limits.memory_bytes >> 20
    if verdict == SHORT_OF_MEMORY:
        raise EngineBusyError(f"the engine's memory limit leaves too little to compile the grammar, for which {mebibytes} MiB may be taken; try again later")
    raise GrammarRefusedError(
        f"it is too complex: it takes more than {seconds:g} s or {mebibytes} MiB to compile, or more memory than is left, or nests too deep"
    )


def _receive(connection: socket.socket, deadline: float, is_wanted: Callable[[], bool]) -> bytes:
    """More of the answer, nothing at its end. Raises UnwantedError: when the connection is closed the child ends, too; TimeoutError after the deadline."""
    while True:
        try:
            return connection.recv(_CHUNK_BYTES)
        except TimeoutError:
            if not is_wanted():
                raise UnwantedError from None
            if time.monotonic() > deadline:
                raise
