"""One model's way from the hub into the cache: resolve the revision, choose the files, download what is missing."""

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from stoker_engine.errors import ModelLoadError
from stoker_engine.hub.address import HubAddress
from stoker_engine.hub.cache import RepositoryCache, RepositoryFile
from stoker_engine.hub.errors import DiskFullError, DownloadFailedError, Source
from stoker_engine.hub.pin import RevisionPin
from stoker_engine.hub.selection import CONFIG_NAME, INDEX_NAME, FileSet, needs_index, select_files
from stoker_engine.hub.session import HubSession, hub_endpoint, hub_token, is_offline

logger = logging.getLogger(__name__)

DEFAULT_REVISION = "main"


@dataclass(frozen=True, slots=True)
class Order:
    """What to download, and where to."""

    address: HubAddress
    revision: str | None
    cache_dir: Path
    file_set: FileSet
    pin: RevisionPin | None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The files that the order stands for, at one commit."""

    commit: str
    files: list[RepositoryFile]

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files)


class HubDownload:
    """Runs on one thread; `chosen` and `message`, what is being waited for, may be read from any."""

    def __init__(self, order: Order) -> None:
        self.chosen: Chosen | None = None
        self.message = ""
        self.cache = RepositoryCache(order.cache_dir, order.address.repository)
        self._order = order
        self._repository = order.address.repository
        self._is_offline = is_offline()
        self._source = Source(
            uri=str(order.address),
            revision=order.revision or DEFAULT_REVISION,
            endpoint=hub_endpoint(),
            has_token=hub_token() is not None,
            cache_dir=str(order.cache_dir),
        )
        self._session = HubSession(self._source, self._tell)

    def run(self) -> Path:
        """The directory, or the GGUF file. Raises ConfigError or ModelLoadError."""
        commit = self._resolve()
        logger.info("%s is commit %s", self._source.name, commit)
        self.chosen = chosen = Chosen(commit, self._choose(commit))
        if missing := self.cache.missing(commit, chosen.files):
            self._require_room(chosen)
            self._download(commit, [file.path for file in missing])
            if left := self.cache.missing(commit, chosen.files):
                raise DownloadFailedError(f"model.uri: {self._source.endpoint} did not give {left[0].path} of {self._source.name}")
        folder = self.cache.snapshot(commit)
        return folder / chosen.files[0].path if chosen.files[0].path.endswith(".gguf") else folder

    def present_bytes(self) -> int:
        return 0 if self.chosen is None else self.cache.present_bytes(self.chosen.commit, self.chosen.files)

    def _resolve(self) -> str:
        pin = self._order.pin
        if pin is not None and (pinned := pin.read()) is not None:
            return pinned
        commit = self._cached_commit() if self._is_offline else self._session.resolve(self._repository, self._order.revision)
        return commit if pin is None else pin.settle(commit)

    def _cached_commit(self) -> str:
        commit = self.cache.known_commit(self._source.revision)
        if commit is None:
            raise self._not_cached("it was never downloaded at this revision")
        return commit

    def _choose(self, commit: str) -> list[RepositoryFile]:
        address = self._order.address
        listed = self._list(commit)
        files = {file.path: file for file in listed}
        index = None
        if needs_index(address, list(files)):
            if self.cache.missing(commit, [files[INDEX_NAME]]):
                self._download(commit, [INDEX_NAME])
            index = (self.cache.snapshot(commit) / INDEX_NAME).read_bytes()
        return [files[name] for name in select_files(address, list(files), self._order.file_set, index)]

    def _list(self, commit: str) -> list[RepositoryFile]:
        """The repository's files; offline, without a list, those that are there."""
        listed = self.cache.listed_files(commit)
        if listed is not None:
            return listed
        if self._is_offline:
            return self.cache.present_files(commit)
        self._download(commit, [CONFIG_NAME])  # with it comes the list
        listed = self.cache.listed_files(commit)
        if listed is None:
            raise ModelLoadError(f"model_cache_dir: {self._source.cache_dir} does not keep the list of files of {self._source.name}")
        return listed

    def _download(self, commit: str, names: list[str]) -> None:
        if self._is_offline:
            raise self._not_cached(f"{names[0]} is not in the cache" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more are not in the cache")
        self.cache.check_writable()
        self.cache.remove_orphans()
        self._session.download(self._repository, commit, names)

    def _require_room(self, chosen: Chosen) -> None:
        if self._is_offline or not self._order.cache_dir.exists():
            return
        missing = chosen.size_bytes - self.present_bytes()
        free = shutil.disk_usage(self._order.cache_dir).free
        if missing > free:
            raise DiskFullError(
                f"model_cache_dir: {self._source.cache_dir} has {free:,} bytes free, {self._source.name} needs {missing:,} more: give it a larger volume"
            )

    def _not_cached(self, what: str) -> ModelLoadError:
        return ModelLoadError(f"model.uri: HF_HUB_OFFLINE is set, and {self._source.cache_dir} lacks {self._source.name}: {what}")

    def _tell(self, message: str) -> None:
        self.message = message
