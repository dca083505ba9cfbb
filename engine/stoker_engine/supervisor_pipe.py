"""SupervisorPipe: how a child process notices that the process that started it is gone, however it went."""

import os

from stoker_engine.errors import ConfigError


class SupervisorPipe:
    """A pipe for `--supervisor-fd`: a child that inherits `read_end` ends when this process does, or at `close`."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()
        self._is_open = True

    def close(self) -> None:
        """Idempotent."""
        if self._is_open:
            self._is_open = False
            os.close(self.read_end)
            os.close(self._write_end)


def check_supervisor_fd(fd: int) -> None:
    """Raises ConfigError where nothing was inherited under that number. Before a program opens files of its own, which may get the number."""
    try:
        os.fstat(fd)
    except (OSError, OverflowError):
        raise ConfigError(f"--supervisor-fd: there is no inherited file descriptor {fd}") from None
