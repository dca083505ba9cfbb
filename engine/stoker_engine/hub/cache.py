"""RepositoryCache: what a cache directory holds of one repository, in the layout of huggingface_hub."""

import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from huggingface_hub import HfApi, get_cached_repo_tree
from huggingface_hub.errors import CachedRepoTreeNotFoundError, RevisionResolutionError
from huggingface_hub.file_download import repo_folder_name

from stoker_engine.hub.errors import unwritable

ORPHAN_SECONDS = 60.0
"""A partial file that nobody has the lock of and nobody has written to for this long is nobody's. Where locks do not work, as on some network file
systems, the time alone tells."""


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """`path` is the one in the repository."""

    path: str
    size: int


class RepositoryCache:
    """Safe to use from several threads and processes."""

    def __init__(self, cache_dir: Path, repository: str) -> None:
        self.cache_dir = cache_dir
        self._repository = repository
        folder_name = repo_folder_name(repo_id=repository, repo_type="model")
        self._blobs = cache_dir / folder_name / "blobs"
        self._snapshots = cache_dir / folder_name / "snapshots"
        self._locks = cache_dir / ".locks" / folder_name

    def snapshot(self, commit: str) -> Path:
        """Where the files of this commit are, once they are there."""
        return self._snapshots / commit

    def known_commit(self, revision: str) -> str | None:
        """The commit that `revision` stood for when the hub was last asked; None where it never was."""
        try:
            return HfApi().resolve_revision(self._repository, revision=revision, cache_dir=self.cache_dir, local_files_only=True).resolved
        except RevisionResolutionError:
            return None

    def listed_files(self, commit: str) -> list[RepositoryFile] | None:
        """The files of this commit as the hub listed them; None where it has not been asked yet."""
        try:
            tree = get_cached_repo_tree(self._repository, revision=commit, cache_dir=self.cache_dir)
        except CachedRepoTreeNotFoundError:
            return None
        return [RepositoryFile(file.path, file.size) for file in tree]

    def present_files(self, commit: str) -> list[RepositoryFile]:
        """The files of this commit that are there."""
        folder = self.snapshot(commit)
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        return [RepositoryFile(path.relative_to(folder).as_posix(), path.stat().st_size) for path in paths]

    def missing(self, commit: str, files: Sequence[RepositoryFile]) -> list[RepositoryFile]:
        folder = self.snapshot(commit)
        return [file for file in files if not (folder / file.path).is_file()]

    def present_bytes(self, commit: str, files: Sequence[RepositoryFile]) -> int:
        """Of `files`, whichever process downloads them. The partial files of the repository count: hardly anything else of it is downloaded meanwhile."""
        missing = sum(file.size for file in self.missing(commit, files))
        partial: dict[str, int] = {}
        for path in self._partial_files():
            blob = path.name.partition(".")[0]
            partial[blob] = max(partial.get(blob, 0), _size(path))
        return sum(file.size for file in files) - missing + min(missing, sum(partial.values()))

    def check_writable(self) -> None:
        """Raises ConfigError, naming the directory, where nothing can be written."""
        probe = self._blobs / f".probe-{uuid.uuid4().hex}"
        try:
            self._blobs.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise unwritable(str(self.cache_dir), error) from error

    def remove_orphans(self) -> None:
        """Removes what downloads that were killed have left behind: nobody can go on with them, and a crash loop would fill the disk."""
        for path in self._partial_files():
            if self._is_orphan(path):
                path.unlink(missing_ok=True)

    def _is_orphan(self, path: Path) -> bool:
        lock = FileLock(self._locks / f"{path.name.partition('.')[0]}.lock", blocking=False)
        try:
            with lock:
                return time.time() - path.stat().st_mtime > ORPHAN_SECONDS
        except (Timeout, OSError):
            return False

    def _partial_files(self) -> list[Path]:
        return list(self._blobs.glob("*.incomplete")) if self._blobs.is_dir() else []


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # it has just been moved into place, or was never there
