"""API keys: read from a file, read again when it changes, found by digests that nobody outside can compute."""

import hmac
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from stoker_engine.errors import ConfigError
from stoker_gateway.http.api_key import key_of
from stoker_gateway.openai.errors import invalid_api_key

logger = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/", "/livez", "/readyz", "/startupz", "/health", "/load", "/metrics", "/metrics/vllm"})
"""What the kubelet, Prometheus and the operator ask for, and the page that asks people for their key: no key is needed."""

LOOK_SECONDS = 1.0
"""How often the file is looked at, at most."""

MAX_FILE_BYTES = 1 << 20
_SECRET_BYTES = 32
"""Of the digests' key, another one in each process."""
_KEY = re.compile(r"[\x21-\x7e]+")
_FileIdentity = tuple[int, int, int]


class ApiKeys:
    """The keys of a file, one a line; empty lines and lines that begin with # are none. Raises ConfigError where it cannot be read or has no key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looked = time.monotonic()
        self._identity: _FileIdentity | None = None
        self._secret = os.urandom(_SECRET_BYTES)
        self._digests: frozenset[bytes] = frozenset()
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise ConfigError(f"--api-keys-file: {path} cannot be read: {error}") from error
        if not self._digests:
            raise ConfigError(f"--api-keys-file: {path} has no key; write one a line")

    def allow(self, key: str) -> bool:
        """Takes as long however many keys there are. How long says nothing of them: a client cannot choose what digest its key has."""
        self._look()
        return self._digest(key) in self._digests

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raises ApiError (401) where a request's headers bring no key, or one that is not known."""
        key = key_of(headers).decode("latin-1")
        if not key:
            raise invalid_api_key("You did not provide an API key. Send it in an Authorization header: Bearer YOUR_KEY.")
        if not self.allow(key):
            raise invalid_api_key("Incorrect API key provided.")

    def _digest(self, key: str) -> bytes:
        return hmac.digest(self._secret, key.encode(), "sha256")

    def _look(self) -> None:
        """A mounted Secret changes by a link that is moved. What cannot be read now is no reason to forget the keys; a file without any is one."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        try:
            if _identity(os.stat(self._path)) != self._identity:
                self._read()
                logger.info("the API keys have changed: there are %d", len(self._digests))
        except (OSError, ValueError) as error:
            logger.warning("the API keys stay as they are: %s cannot be read: %s", self._path, error)

    def _read(self) -> None:
        with self._path.open("rb") as file:
            identity = _identity(os.fstat(file.fileno()))
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"it is larger than {MAX_FILE_BYTES} bytes")
        self._digests = frozenset(map(self._digest, _keys(content)))
        self._identity = identity


def _keys(content: bytes) -> Iterator[str]:
    """Raises ValueError, without the key, for one that no header could bring."""
    for number, line in enumerate(content.decode().splitlines(), start=1):
        key = line.strip()
        if not key or key.startswith("#"):
            continue
        if not _KEY.fullmatch(key):
            raise ValueError(f"line {number} is no key: it must have visible ASCII characters alone")
        yield key


def _identity(stat: os.stat_result) -> _FileIdentity:
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
