"""Ownership of the socket directory: one api at a time, and never a file of somebody else's deleted.

`flock` on api.lock keeps a second api out. Each socket path is looked at before it is bound, since libzmq itself would delete a regular file there.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stoker_engine.addresses import SocketAddresses
from stoker_engine.errors import SocketDirectoryError

SOCKET_UMASK = 0o177
"""Sockets are for this user alone."""


class SocketDirectory:
    """Held from construction until `release`."""

    def __init__(self, addresses: SocketAddresses) -> None:
        self._addresses = addresses
        self._inodes: list[int] = []
        self._lock = self._take_lock(addresses.lock_path)
        try:
            for path in addresses.paths:
                _remove_stale_socket(path)
        except SocketDirectoryError:
            os.close(self._lock)
            raise

    def remember(self) -> None:
        """The sockets are bound now: `check` compares with them."""
        self._inodes = [path.lstat().st_ino for path in self._addresses.paths]

    def check(self) -> None:
        """Raises SocketDirectoryError where a socket was deleted or replaced: no engine could connect any more."""
        for path, inode in zip(self._addresses.paths, self._inodes, strict=True):
            if _inode(path) != inode:
                raise SocketDirectoryError(f"--socket-dir: {path} was deleted or replaced")

    def release(self) -> None:
        """Removes the sockets and lets the next api in."""
        for path, inode in zip(self._addresses.paths, self._inodes, strict=False):
            if _inode(path) == inode:  # a file that somebody put in its place is not ours to delete
                path.unlink(missing_ok=True)
        os.close(self._lock)

    @staticmethod
    def _take_lock(path: Path) -> int:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise SocketDirectoryError(f"--socket-dir: cannot write {path}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise SocketDirectoryError(f"--socket-dir: {path} is held by another api, pid {holder}") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        return lock


@contextmanager
def private_umask() -> Iterator[None]:
    """Sockets bound inside are not accessible to other users."""
    previous = os.umask(SOCKET_UMASK)
    try:
        yield
    finally:
        os.umask(previous)


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except OSError:
        return None


def _remove_stale_socket(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise SocketDirectoryError(f"--socket-dir: cannot look at {path}: {error.strerror}") from error
    if not stat.S_ISSOCK(mode):
        raise SocketDirectoryError(f"--socket-dir: {path} is not a socket; it is left alone")
    path.unlink()
