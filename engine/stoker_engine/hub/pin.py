"""RevisionPin: the commit that a replica's api and engine serve, written where both see it: the directory of their sockets.

A branch may move between their starts, or at a restart of one of them: a tokenizer must not meet another commit's weights.
"""

import logging
import os
import uuid
from pathlib import Path

import msgspec

logger = logging.getLogger(__name__)

FILE_NAME = "model-revision.json"


class _Pinned(msgspec.Struct):
    uri: str
    revision: str
    commit: str


class RevisionPin:
    """Who resolves first writes it; who comes later reads it."""

    def __init__(self, directory: str, uri: str, revision: str) -> None:
        self._path = Path(directory) / FILE_NAME
        self._uri = uri
        self._revision = revision

    def read(self) -> str | None:
        """The commit; None where nobody has pinned this model's yet."""
        try:
            pinned = msgspec.json.decode(self._path.read_bytes(), type=_Pinned)
        except (OSError, msgspec.MsgspecError):
            return None
        return pinned.commit if (pinned.uri, pinned.revision) == (self._uri, self._revision) else None

    def settle(self, commit: str) -> str:
        """Pins `commit`; returns the one that counts, which may be another's. Where nothing can be written, each program goes by its own."""
        mine = self._path.with_name(f".{FILE_NAME}.{uuid.uuid4().hex}")
        try:
            mine.write_bytes(msgspec.json.encode(_Pinned(self._uri, self._revision, commit)))
            try:
                os.link(mine, self._path)
            except FileExistsError:
                if self.read() is None:
                    mine.replace(self._path)  # another model's
            finally:
                mine.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("the commit cannot be pinned in %s: %s", self._path.parent, error)
        return self.read() or commit
