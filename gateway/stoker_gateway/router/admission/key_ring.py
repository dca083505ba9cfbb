"""KeyRing: the API keys that are known, read from a file again when it changes."""

import asyncio
import logging
import os
import time
from hashlib import sha256
from pathlib import Path

from stoker_engine.errors import ConfigError
from stoker_gateway.openai.errors import invalid_api_key
from stoker_gateway.router.admission.caller import Caller
from stoker_gateway.router.admission.key_file import MAX_FILE_BYTES, KeyFile, parse_key_file

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between two looks at the file."""

_FileIdentity = tuple[int, int, int]


class KeyRing:
    """Raises ConfigError where the file cannot be read or has no entry that is of use."""

    def __init__(self, path: Path) -> None:
        self.faults: tuple[str, ...] = ()
        """Of the file as it is now; a file that cannot be read leaves the keys as they are."""
        self._path = path
        self._identity: _FileIdentity | None = None
        self._callers: dict[bytes, Caller] = {}
        try:
            if (read := _read(path, None)) is not None:
                self._take(*read, time.monotonic())
        except (OSError, ValueError) as error:
            raise ConfigError(f"--api-keys-file: {path} cannot be read: {error}") from error
        if not self._callers:
            raise ConfigError(f"--api-keys-file: {path} has no entry that can be used: {'; '.join(self.faults) or 'it is empty'}")

    @property
    def names(self) -> frozenset[str]:
        return frozenset(caller.name for caller in self._callers.values())

    def find(self, key: bytes) -> Caller:
        """`key` as the request brings it, empty where it brings none. Raises ApiError 401. Whoever guesses cannot choose what digest a guess has."""
        if not key:
            raise invalid_api_key("You did not provide an API key. Send it in an Authorization header: Bearer YOUR_KEY.")
        if (caller := self._callers.get(sha256(key).digest())) is None:
            raise invalid_api_key("Incorrect API key provided.")
        return caller

    async def watch(self) -> None:
        """Reads the file again whenever it changes, until it is cancelled. In a thread: a large one takes a while."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                if (read := await asyncio.to_thread(_read, self._path, self._identity)) is not None:
                    self._take(*read, time.monotonic())
                    logger.info("the API keys have changed: there are %d", len(self._callers))
            except (OSError, ValueError) as error:
                fault = f"it cannot be read: {error}"
                if self.faults != (fault,):
                    logger.warning("the API keys stay as they are: %s: %s", self._path, fault)
                self.faults = (fault,)

    def _take(self, file: KeyFile, identity: _FileIdentity, now: float) -> None:
        self._identity = identity
        by_name = {caller.name: caller for caller in self._callers.values()}
        callers: dict[bytes, Caller] = {}
        for entry in file.entries:
            caller = by_name.get(entry.name) or Caller(entry.name)
            caller.update(entry, now)
            callers |= {bytes.fromhex(digest): caller for digest in entry.digests}
        self._callers = callers
        self.faults = file.faults
        for fault in file.faults:
            logger.warning("an entry of %s cannot be used, the others are: %s", self._path, fault)


def _read(path: Path, known: _FileIdentity | None) -> tuple[KeyFile, _FileIdentity] | None:
    """None where it is the file that is known. Raises OSError or ValueError."""
    with path.open("rb") as file:
        if (identity := _identity(os.fstat(file.fileno()))) == known:
            return None
        content = file.read(MAX_FILE_BYTES + 1)
    return parse_key_file(content), identity


def _identity(stat: os.stat_result) -> _FileIdentity:
    """A mounted Secret changes by a link that is moved: to another inode."""
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
