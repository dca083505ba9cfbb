"""The three ipc:// sockets of a replica, in the directory that its api and engine share."""

import os
from pathlib import Path

from stoker_engine.errors import ConfigError

MAX_PATH_BYTES = 80
"""A Unix socket path may have 107 bytes; less leaves room for the names libzmq derives."""


class SocketAddresses:
    """Addresses of the handshake, input and output sockets, named from the engine's side. The api binds, the engine connects."""

    __slots__ = ("directory", "handshake_path", "input_path", "lock_path", "output_path")

    def __init__(self, socket_dir: str) -> None:
        self.directory = Path(socket_dir)
        self.handshake_path = self.directory / "handshake.sock"
        self.input_path = self.directory / "input.sock"
        self.output_path = self.directory / "output.sock"
        self.lock_path = self.directory / "api.lock"
        longest = max(len(os.fsencode(path)) for path in self.paths)
        if longest > MAX_PATH_BYTES:
            raise ConfigError(f"--socket-dir: socket paths may have {MAX_PATH_BYTES} bytes, {str(socket_dir)!r} makes {longest}")

    @property
    def paths(self) -> tuple[Path, Path, Path]:
        return self.handshake_path, self.input_path, self.output_path

    @property
    def handshake(self) -> str:
        return f"ipc://{self.handshake_path}"

    @property
    def input(self) -> str:
        return f"ipc://{self.input_path}"

    @property
    def output(self) -> str:
        return f"ipc://{self.output_path}"
