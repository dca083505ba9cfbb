"""One child process in a session of its own: started, read line by line, signalled, and never left behind."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

MAX_LINE_BYTES = 16384
"""A longer line is cut: a child must not fill our memory."""


class ChildProcess:
    """A running child. Its session keeps a terminal's Ctrl-C from it; `send_signal` reaches the process, `kill` all of its session's process group."""

    def __init__(self, process: asyncio.subprocess.Process, reader: asyncio.Task[None]) -> None:
        self._process = process
        self._reader = reader

    @classmethod
    async def start(
        cls, command: Sequence[str], environment: Mapping[str, str], inherited_fds: Sequence[int], on_line: Callable[[str], None]
    ) -> "ChildProcess":
        """Starts `command` with `environment` beside our own; each line of its output goes to `on_line`. Raises OSError if it cannot be started."""
        # A pipe of our own: asyncio's would make wait() wait for grandchildren that still hold it.
        read_fd, write_fd = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, **environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_fd,
                stderr=write_fd,
                pass_fds=inherited_fds,
                start_new_session=True,
            )
        except BaseException:  # cancellation, too
            os.close(read_fd)
            raise
        finally:
            os.close(write_fd)
        return cls(process, asyncio.create_task(_read(read_fd, on_line)))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def wait(self) -> int:
        """The exit code, when the process has ended, the rest of its group is gone and its last line is read. A signal counts as 128 + its number."""
        returncode = await self._process.wait()
        self._signal_group(signal.SIGKILL)
        await asyncio.wait({self._reader}, timeout=1.0)
        # Only a grandchild that left the session can hold the pipe now, and it is none of ours to wait for.
        self._reader.cancel()
        return returncode if returncode >= 0 else 128 - returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process itself; nothing if it has ended."""
        if self.is_running:
            self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL to the process and all that it started in its session."""
        if self.is_running:
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return  # the whole group is gone, which is what was wanted


async def _read(read_fd: int, on_line: Callable[[str], None]) -> None:
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(read_fd, "rb", 0))
    try:
        async for line in _lines(stream):
            on_line(line)
    finally:
        transport.close()


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    rest = b""
    while chunk := await stream.read(65536):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield _decode(line)
        if len(rest) > MAX_LINE_BYTES:
            yield _decode(rest)
            rest = b""
    if rest:
        yield _decode(rest)


def _decode(line: bytes) -> str:
    return line[:MAX_LINE_BYTES].decode(errors="replace").rstrip()
