"""The socket directories of this machine's replicas: `<root>/<8 hex>/`, mode 0700, ours, locked while we live, gone when we end."""

import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from pathlib import Path

from stoker_engine.errors import SocketDirectoryError

ABANDONED_SECONDS = 60.0
"""A directory is locked and gets its name within milliseconds of being made; one that is not named by then has nobody who will."""


def local_root() -> Path:
    """The directory that holds this user's socket directories on this machine; short, because a Unix socket path may have 107 bytes."""
    return Path("/tmp") / f"stoker-{os.getuid()}"


class SocketDirectories:
    """Makes, holds and removes socket directories. Raises SocketDirectoryError when a path is not a directory of ours or cannot be written."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._locks: dict[Path, int] = {}

    def create(self) -> Path:
        """A new empty directory, locked by this process."""
        try:
            try:
                return self._create()
            except FileNotFoundError:
                return self._create()  # another process removed the root, having no directory in it any more
        except OSError as error:
            raise SocketDirectoryError(f"socket directory {error.filename or self._root}: {error.strerror}") from error

    def remove_all(self) -> None:
        """Removes every directory that was created here, and the root when nobody else has one in it."""
        for path, lock in self._locks.items():
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
        self._locks.clear()
        try:
            self._root.rmdir()
        except OSError:
            return  # another process still has a directory in it

    def _create(self) -> Path:
        _own_directory(self._root)
        self._sweep()
        # It gets its final name only when it is locked, so that nobody's sweep takes it for one that was left behind.
        name = secrets.token_hex(4)
        new = self._root / f"new-{name}"
        new.mkdir(mode=0o700)
        lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path = new.rename(self._root / name)
        self._locks[path] = lock
        return path

    def _sweep(self) -> None:
        """Removes what a process left that was killed: its lock went with it."""
        for path in self._root.iterdir():
            if path in self._locks or not re.fullmatch("(new-)?[0-9a-f]{8}", path.name):
                continue
            try:
                if path.name.startswith("new-") and time.time() - path.lstat().st_mtime < ABANDONED_SECONDS:
                    continue
                lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except (FileNotFoundError, NotADirectoryError):
                continue  # removed by its owner just now, or no directory of ours
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            except BlockingIOError:
                continue
            finally:
                os.close(lock)


def _own_directory(path: Path) -> None:
    """Makes `path`, or checks that it is a directory of ours: /tmp is everyone's, and a link there could lead anywhere."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise SocketDirectoryError(f"socket directory {path}: not a directory; remove it") from None
        if found.st_uid != os.getuid():
            raise SocketDirectoryError(f"socket directory {path}: belongs to user id {found.st_uid}, not to {os.getuid()}; remove it") from None
        if stat.S_IMODE(found.st_mode) & 0o077:
            path.chmod(0o700)
