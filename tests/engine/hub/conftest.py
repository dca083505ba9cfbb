"""Downloads by the real hub library from a stand-in of the hub."""

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from stoker_engine.config import ModelConfig
from stoker_engine.hub import session
from stoker_engine.model_fetch import fetch_tokenizer, fetch_weights
from stoker_engine.protocol import ModelDownload

REPOSITORY = "org/tiny"
WEIGHTS = bytes(range(256)) * 1000
FILES: Mapping[str, bytes] = {
    "README.md": b"# Tiny",
    "chat_template.jinja": b"{{ messages }}",
    "config.json": b'{"model_type": "llama"}',
    "consolidated.safetensors": b"the same weights, in another layout" * 100,
    "model.safetensors": WEIGHTS,
    "onnx/config.json": b"{}",
    "pytorch_model.bin": b"a pickle",
    "tokenizer.json": b'{"version": "1.0"}',
}
TEXT = ["chat_template.jinja", "config.json", "tokenizer.json"]


class Fetcher:
    """Fetches into one cache directory; keeps what was reported."""

    def __init__(self, cache_dir: Path) -> None:
        self.cache_dir = cache_dir
        self.reports: list[tuple[ModelDownload, str]] = []

    def weights(self, uri: str = f"hf://{REPOSITORY}", revision: str | None = None, pin: Path | None = None) -> Path:
        return self._wait(fetch_weights(ModelConfig(uri=uri, revision=revision), str(self.cache_dir), pin and str(pin)))

    def tokenizer(self, uri: str = f"hf://{REPOSITORY}", revision: str | None = None, pin: Path | None = None) -> Path:
        return self._wait(fetch_tokenizer(ModelConfig(uri=uri, revision=revision), str(self.cache_dir), pin and str(pin)))

    @property
    def messages(self) -> list[str]:
        return list(dict.fromkeys(message for _, message in self.reports if message))

    def _wait(self, fetch: Any) -> Path:
        path: Path = fetch.wait(lambda download, message: self.reports.append((download, message)))
        return path


@pytest.fixture
def fetcher(tmp_path: Path) -> Fetcher:
    return Fetcher(tmp_path / "cache")


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between attempts, of ours."""
    monkeypatch.setattr(session, "FIRST_WAIT_SECONDS", 0.01)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library writes 10 MiB at once, more than these models have."""
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 16384)


@pytest.fixture
def names() -> Callable[[Path], list[str]]:
    """Files below a directory."""
    return lambda folder: sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def tiny_files() -> dict[str, bytes]:
    return dict(FILES)


@pytest.fixture
def text_files() -> list[str]:
    return list(TEXT)


@pytest.fixture
def make_answer(hub: Any) -> Callable[..., Any]:
    """A scripted answer of the stand-in."""
    import hub_stand_in

    return hub_stand_in.Answer


@pytest.fixture
def free_port() -> Callable[[], int]:
    def find() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return find
