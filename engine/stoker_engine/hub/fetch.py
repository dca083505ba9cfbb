"""fetch: a download on a thread of its own, so that whoever waits for it stays able to report, to stop and to give up."""

import logging
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path

from stoker_engine.config import ModelConfig
from stoker_engine.errors import StartupTimeoutError
from stoker_engine.hub.address import parse_hub_address
from stoker_engine.hub.download import HubDownload, Order
from stoker_engine.hub.pin import RevisionPin
from stoker_engine.hub.selection import FileSet
from stoker_engine.hub.session import configure_library, default_cache_dir
from stoker_engine.protocol import ModelDownload

__all__ = ["FileSet", "HubFetch", "fetch"]

logger = logging.getLogger(__name__)

COMMIT = re.compile(r"[0-9a-f]{40}")
"""A revision that cannot move."""

REPORT_SECONDS = 0.5
RATE_SECONDS = 10.0
"""The rate is an average over this long."""


def fetch(model: ModelConfig, cache_dir: str | None, pin_directory: str | None, file_set: FileSet) -> "HubFetch":
    """Raises ConfigError for an address that is none."""
    folder = Path(cache_dir or default_cache_dir()).expanduser().resolve()
    is_commit = model.revision is not None and COMMIT.fullmatch(model.revision) is not None
    pin = None if pin_directory is None or is_commit else RevisionPin(pin_directory, model.uri, model.revision or "")
    return HubFetch(Order(parse_hub_address(model.uri), model.revision, folder, file_set, pin))


class HubFetch:
    """The download begins at once. The thread is a daemon: it does not keep a process that is told to stop."""

    def __init__(self, order: Order) -> None:
        configure_library()
        self._download = HubDownload(order)
        self._rate = _Rate()
        self.path: Future[Path] = Future()
        """The directory, or the GGUF file. Raises ConfigError or ModelLoadError."""
        threading.Thread(target=self._run, name="download", daemon=True).start()

    def wait(self, on_progress: Callable[[ModelDownload, str], None], limit_seconds: float = math.inf) -> Path:
        """Reports now, twice a second, and at the end. Raises StartupTimeoutError where it takes longer than `limit_seconds`."""
        deadline = time.monotonic() + limit_seconds
        while not self.path.done():
            on_progress(self.progress, self.message)
            if time.monotonic() > deadline:
                raise self.too_late(limit_seconds)
            wait([self.path], REPORT_SECONDS)
        path = self.path.result()
        on_progress(self.progress, "")
        return path

    def too_late(self, limit_seconds: float) -> StartupTimeoutError:
        words = f": {self.message}" if self.message else ""
        return StartupTimeoutError(f"the model is not downloaded after {limit_seconds:.0f} s (startupTimeout), {self.progress.share:.0%} are there{words}")

    @property
    def message(self) -> str:
        """What the download waits for; empty while it goes on."""
        return self._download.message

    @property
    def progress(self) -> ModelDownload:
        chosen = self._download.chosen
        if chosen is None:
            return ModelDownload()
        present = self._download.present_bytes()
        rate = self._rate.of(present)
        is_done = present >= chosen.size_bytes
        return ModelDownload(
            revision=chosen.commit,
            size_bytes=chosen.size_bytes,
            bytes=present,
            bytes_per_second=None if is_done else rate,
            eta_seconds=None if is_done or not rate else (chosen.size_bytes - present) / rate,
        )

    def _run(self) -> None:
        try:
            path = self._download.run()
        except BaseException as error:  # noqa: BLE001 - the future raises it where it is waited for
            self.path.set_exception(error)
        else:
            self.path.set_result(path)


class _Rate:
    """Bytes per second over the last RATE_SECONDS."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def of(self, total: int) -> float | None:
        """Takes a sample; None after the first one."""
        now = time.monotonic()
        self._samples.append((now, total))
        while now - self._samples[0][0] > RATE_SECONDS and len(self._samples) > 2:
            self._samples.popleft()
        began, first = self._samples[0]
        return (total - first) / (now - began) if now > began else None
