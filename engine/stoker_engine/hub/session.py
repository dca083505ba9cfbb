"""HubSession: the hub library's calls, with their environment read, their waits told and their failures tried again."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import httpx2
from huggingface_hub import HfApi, constants, get_session, snapshot_download
from huggingface_hub.errors import HFValidationError, RevisionResolutionError, XetDownloadError
from huggingface_hub.utils.tqdm import disable_progress_bars

from stoker_engine.errors import ConfigError
from stoker_engine.hub.errors import DownloadFailedError, Source, understand
from stoker_engine.version import __version__

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_FAILURES = 5
"""In a row, of the hub or the way to it; the hub library has tried some of them several times itself. A rate limit is no failure."""
FIRST_WAIT_SECONDS = 1.0
MAX_WAIT_SECONDS = 30.0
TIMEOUT_SECONDS = 30.0
"""For the hub's next byte: one that takes connections and says nothing counts as failed."""

MAX_ASKED_SECONDS = 86400.0
"""A hub that asks for more asks for more than any startupTimeout."""

_TRUE = frozenset({"1", "ON", "YES", "TRUE"})
_RATE_LIMIT_PREFIX = "t="


def configure_library() -> None:
    """Before the first call. Nothing is told to the hub about who asks but our name; what is worth telling of a download is told by us.

    Xet, the hub's second way to send files, has servers and a cache of its own, which neither HF_ENDPOINT nor our cache directory covers: files come by
    HTTP, unless HF_HUB_DISABLE_XET says otherwise.
    """
    if "HF_HUB_DISABLE_XET" not in os.environ:
        constants.HF_HUB_DISABLE_XET = True
    constants.HF_HUB_DISABLE_TELEMETRY = True
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs URLs, which open a private file to whoever has them
    disable_progress_bars()


def default_cache_dir() -> str:
    """Where the hub library keeps models where nobody says otherwise."""
    return constants.HF_HUB_CACHE


def hub_endpoint() -> str:
    return os.environ.get("HF_ENDPOINT") or constants.ENDPOINT


def hub_token() -> str | None:
    """Only from HF_TOKEN: no token that somebody once stored on this machine is sent."""
    return os.environ.get("HF_TOKEN", "").strip() or None


def is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE


class HubSession:
    """Calls for one model, on one thread. `tell` gets what is being waited for, and an empty text when the wait is over."""

    def __init__(self, source: Source, tell: Callable[[str], None]) -> None:
        self._source = source
        self._tell = tell
        self._token = hub_token() or False
        self._waits_until: float | None = None
        self._was_answered = False

    def resolve(self, repository: str, revision: str | None) -> str:
        """The commit. Where the hub is down, the one that the cache last saw."""
        api = HfApi(endpoint=self._source.endpoint, token=self._token, library_name="stoker", library_version=__version__)
        resolved = self._patiently(lambda: api.resolve_revision(repository, revision=revision, cache_dir=self._source.cache_dir))
        if not self._was_answered and resolved.resolved != revision:
            logger.warning("%s does not answer: %s is the commit that the cache last saw", self._source.endpoint, self._source.name)
        return resolved.resolved

    def download(self, repository: str, commit: str, names: list[str]) -> None:
        """Puts these files into the cache, those that are not there yet. Another process may be at it: each file is downloaded once."""

        def attempt() -> None:
            snapshot_download(
                repository,
                revision=commit,
                cache_dir=self._source.cache_dir,
                endpoint=self._source.endpoint,
                token=self._token,
                allow_patterns=[_literally(name) for name in names],
                library_name="stoker",
                library_version=__version__,
            )

        self._patiently(attempt)

    def _patiently(self, attempt: Callable[[], T]) -> T:
        num_failures = 0
        while True:
            try:
                with self._watching_answers():
                    return attempt()
            except HFValidationError as error:
                raise ConfigError(f"model.uri: {self._source.uri!r}: {error}") from error
            except (httpx2.HTTPError, OSError, RevisionResolutionError, XetDownloadError) as error:
                trouble = understand(error, self._source)
                num_failures += not trouble.is_rate_limit
                if num_failures >= MAX_FAILURES:
                    raise DownloadFailedError(f"model.uri: {self._source.name}: {trouble.message} ({num_failures} attempts)") from error
                wait = min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** max(0, num_failures - 1))
                if trouble.is_rate_limit:
                    wait = _asked_wait(error) or MAX_WAIT_SECONDS
                else:
                    logger.warning("%s: %s", self._source.uri, trouble.message)
                self._wait_begins(f"{trouble.message}; next attempt in {wait:.0f} s", wait)
                time.sleep(wait)

    @contextmanager
    def _watching_answers(self) -> Iterator[None]:
        """The library waits by itself where it is told to; its client, which it replaces now and then, shows the answers that tell it to."""
        client = get_session()
        hooks = client.event_hooks
        client.event_hooks = {"request": [*hooks.get("request", []), _bound], "response": [*hooks.get("response", []), self._on_response]}
        try:
            yield
        finally:
            client.event_hooks = hooks

    def _on_response(self, response: httpx2.Response) -> None:
        if response.status_code == httpx2.codes.TOO_MANY_REQUESTS:
            wait = _wait_of(response)
            when = f"waiting {wait:.0f} s" if wait is not None else "waiting"
            message = f"{self._source.endpoint} limits the rate of requests (429): {when}"
            logger.warning("%s: %s", self._source.uri, message)
            self._wait_begins(message, wait or 0.0)
        elif response.is_success:
            self._was_answered = True
            if self._waits_until is not None and time.monotonic() > self._waits_until:  # another file may come while one waits
                self._waits_until = None
                self._tell("")

    def _wait_begins(self, message: str, wait_seconds: float) -> None:
        self._waits_until = time.monotonic() + wait_seconds
        self._tell(message)


def _bound(request: httpx2.Request) -> None:
    """The library sets no timeouts for some of its calls."""
    given = request.extensions.get("timeout", {})
    request.extensions["timeout"] = {kind: given.get(kind) or TIMEOUT_SECONDS for kind in ("connect", "read", "write", "pool")}


def _asked_wait(error: BaseException | None) -> float | None:
    while error is not None:
        if isinstance(response := getattr(error, "response", None), httpx2.Response):
            return _wait_of(response)
        error = error.__cause__ or error.__context__
    return None


def _wait_of(response: httpx2.Response) -> float | None:
    """Seconds, by `Retry-After: 30` or `RateLimit: "api";r=0;t=30`, and one more, since both are whole numbers."""
    for value in (response.headers.get("Retry-After", ""), *response.headers.get("RateLimit", "").replace(" ", "").split(";")):
        number = value.removeprefix(_RATE_LIMIT_PREFIX)
        if number.isdecimal():
            return min(float(number), MAX_ASKED_SECONDS) + 1
    return None


def _literally(name: str) -> str:
    """A pattern that only this name matches."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)
