"""What the hub library raises, as errors that say what to do; and what is worth another attempt."""

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus

import httpx2
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RevisionNotFoundError,
)

from stoker_engine.errors import ConfigError, ModelLoadError

NO_PERMISSION = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
HOW_TO_PERMIT = "set HF_TOKEN to a token that may read it (in a pod: the Secret that spec.model.credentialsSecretRef names)"


class AccessDeniedError(ModelLoadError):
    """The hub does not give the model to this token, or to nobody without one."""

    reason = "AuthRequired"


class NotOnHubError(ModelLoadError):
    """The hub has no such repository, revision or file."""

    reason = "DownloadFailed"


class DiskFullError(ModelLoadError):
    """The cache has no room for the model."""

    reason = "DiskFull"


class DownloadFailedError(ModelLoadError):
    """The hub could not be reached, or failed, again and again."""

    reason = "DownloadFailed"


@dataclass(frozen=True, slots=True)
class Source:
    """What is asked for, as messages name it. `revision` is what the user wrote."""

    uri: str
    revision: str
    endpoint: str
    has_token: bool
    cache_dir: str

    @property
    def name(self) -> str:
        return f"{self.uri!r} (revision {self.revision!r})"


@dataclass(frozen=True, slots=True)
class Trouble:
    """What may be over at the next attempt."""

    message: str
    is_rate_limit: bool = False


def understand(error: BaseException, source: Source) -> Trouble:
    """What may pass by itself. Raises ConfigError or a ModelLoadError for what does not."""
    chain = list(_chain(error))
    for link in chain:
        if isinstance(link, HfHubHTTPError):
            return _understand_answer(link, source)
        if isinstance(link, FileMetadataError):
            raise DownloadFailedError(f"model.uri: {source.endpoint} does not answer as a hub does: {_first_line(link)}") from error
    if not any(isinstance(link, httpx2.HTTPError) for link in chain):
        _raise_for_disk(chain, source)
    last = next((link for link in chain if isinstance(link, httpx2.HTTPError)), error)
    return Trouble(f"cannot reach {source.endpoint}: {type(last).__name__}: {_first_line(last)}")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _understand_answer(error: HfHubHTTPError, source: Source) -> Trouble:
    status = error.response.status_code
    if isinstance(error, GatedRepoError):
        raise AccessDeniedError(f"model.uri: {source.name} is gated: ask for access on its page at {source.endpoint}, then {HOW_TO_PERMIT}") from error
    if isinstance(error, DisabledRepoError):
        raise AccessDeniedError(f"model.uri: {source.name} is disabled by {source.endpoint}") from error
    if isinstance(error, RevisionNotFoundError):
        raise NotOnHubError(f"model.revision: {source.endpoint} has no revision {source.revision!r} of {source.uri!r}") from error
    if isinstance(error, EntryNotFoundError):
        raise NotOnHubError(f"model.uri: {source.endpoint} has no file of {source.name} at {error.response.url}") from error
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise AccessDeniedError(f"model.uri: {_refusal(source, status)}: {HOW_TO_PERMIT}") from error
    if status == HTTPStatus.NOT_FOUND:
        private = "or the token in HF_TOKEN does not show it" if source.has_token else f"or it is private: {HOW_TO_PERMIT}"
        raise NotOnHubError(f"model.uri: {source.endpoint} has no repository for {source.name}, {private}") from error
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Trouble(f"{source.endpoint} limits the rate of requests (429)", is_rate_limit=True)
    if status < HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.REQUEST_TIMEOUT:
        raise DownloadFailedError(f"model.uri: {source.endpoint} answered {status} for {source.name}: {_first_line(error)}") from error
    return Trouble(f"{source.endpoint} answered {status}")


def _refusal(source: Source, status: int) -> str:
    if source.has_token:
        return f"{source.endpoint} refuses {source.name} to the token in HF_TOKEN ({status})"
    return f"{source.endpoint} shows {source.name} to nobody without a token ({status}): it is private, gated or does not exist"


def _raise_for_disk(chain: list[BaseException], source: Source) -> None:
    for link in chain:
        if isinstance(link, OSError) and not isinstance(link, LocalEntryNotFoundError):
            if link.errno in NO_PERMISSION:
                raise unwritable(source.cache_dir, link) from link
            if link.errno in NO_SPACE:
                raise DiskFullError(f"model_cache_dir: {source.cache_dir} is full: {source.name} does not fit ({link.strerror})") from link


def unwritable(cache_dir: str, error: OSError) -> ConfigError:
    """The cache directory cannot be written."""
    return ConfigError(f"model_cache_dir: cannot write {cache_dir}: {error.strerror or error}; name a directory that this user may write")


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
