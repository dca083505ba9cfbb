"""What is downloaded, once, and at which commit."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker_engine.errors import ModelLoadError

MODEL = "org/tiny"
SHARDED = {"model.safetensors.index.json": b'{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}}'}


def test_the_engine_gets_weights_and_text_and_no_pickle(hub: Any, fetcher: Any, names: Any, tiny_files: dict[str, bytes], text_files: list[str]) -> None:
    commit = hub.add_model(MODEL, tiny_files)
    path = fetcher.weights()
    assert names(path) == sorted([*text_files, "model.safetensors"])
    assert (path / "model.safetensors").read_bytes() == tiny_files["model.safetensors"]
    last = fetcher.reports[-1][0]
    assert (last.revision, last.bytes, last.size_bytes) == (commit, last.size_bytes, sum(len(tiny_files[name]) for name in names(path)))


def test_the_api_gets_no_weights(hub: Any, fetcher: Any, names: Any, tiny_files: dict[str, bytes], text_files: list[str]) -> None:
    hub.add_model(MODEL, tiny_files)
    assert names(fetcher.tokenizer()) == text_files
    assert not hub.count("*safetensors*") and not hub.count("*/stored/*")


def test_a_second_start_downloads_nothing(hub: Any, fetcher: Any, tiny_files: dict[str, bytes]) -> None:
    commit = hub.add_model(MODEL, tiny_files)
    first = fetcher.weights()
    hub.requests.clear()
    assert fetcher.weights() == first
    assert [request.path for request in hub.requests] == [f"/api/models/{MODEL}"]
    hub.requests.clear()
    assert fetcher.weights(revision=commit) == first
    assert not hub.requests


def test_shards_are_those_that_the_index_lists(hub: Any, fetcher: Any, names: Any, tiny_files: dict[str, bytes], text_files: list[str]) -> None:
    del tiny_files["model.safetensors"]
    shards = {"model-1.safetensors": b"1", "model-2.safetensors": b"2", "model-3.safetensors": b"3"}
    hub.add_model(MODEL, tiny_files | SHARDED | shards)
    assert names(fetcher.weights()) == sorted([*text_files, *SHARDED, "model-1.safetensors", "model-2.safetensors"])


def test_a_shard_that_the_repository_lacks_is_named(hub: Any, fetcher: Any, tiny_files: dict[str, bytes]) -> None:
    hub.add_model(MODEL, tiny_files | SHARDED | {"model-1.safetensors": b"1"})
    with pytest.raises(ModelLoadError, match=r"lacks model-2\.safetensors"):
        fetcher.weights()


@pytest.mark.parametrize("part", ["weights", "tokenizer"])
def test_the_only_gguf_file_is_the_model(hub: Any, fetcher: Any, names: Any, part: str) -> None:
    hub.add_model(MODEL, {"README.md": b"", "config.json": b"{}", "tiny.Q4_1.gguf": b"GGUF" * 1000})
    path = getattr(fetcher, part)()
    assert path.name == "tiny.Q4_1.gguf" and path.read_bytes() == b"GGUF" * 1000


def test_one_of_several_gguf_files_must_be_named(hub: Any, fetcher: Any, names: Any) -> None:
    hub.add_model(MODEL, {"a.gguf": b"GGUF a", "b/c[1].gguf": b"GGUF c", "b/c1.gguf": b"GGUF 1"})
    with pytest.raises(ModelLoadError, match=r"has 3 GGUF files; name one as hf://org/tiny/<file>: a\.gguf, b/c\[1\]\.gguf"):
        fetcher.weights()
    path = fetcher.weights(f"hf://{MODEL}/b/c[1].gguf")
    assert path.read_bytes() == b"GGUF c"
    assert hub.count("GET */resolve/*.gguf") == 1
    with pytest.raises(ModelLoadError, match=r"has no file 'd\.gguf'; its GGUF files: a\.gguf"):
        fetcher.weights(f"hf://{MODEL}/d.gguf")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": b"{}", "pytorch_model.bin": b""}, r"no weights as safetensors or GGUF: pytorch_model\.bin can run code when read"),
        ({"config.json": b"{}", "consolidated.safetensors": b""}, r"neither model\.safetensors nor .*only consolidated\.safetensors"),
        ({"model.safetensors": b""}, r"has no config\.json"),
        ({"config.json": b"{}", "model.safetensors.index.json": b"[]"}, "is not a valid index"),
    ],
)
def test_a_repository_without_a_model_is_refused(hub: Any, fetcher: Any, files: dict[str, bytes], message: str) -> None:
    hub.add_model(MODEL, files)
    with pytest.raises(ModelLoadError, match=message):
        fetcher.weights()


def test_a_tag_or_branch_with_a_slash_is_a_revision(hub: Any, fetcher: Any, tiny_files: dict[str, bytes]) -> None:
    hub.add_model(MODEL, tiny_files)
    commit = hub.add_model(MODEL, tiny_files | {"config.json": b'{"model_type": "other"}'}, revision="refs/pr/1")
    assert fetcher.weights(revision="refs/pr/1").name == commit


def test_api_and_engine_take_the_same_commit_though_the_branch_moves(hub: Any, fetcher: Any, tiny_files: dict[str, bytes], tmp_path: Path) -> None:
    commit = hub.add_model(MODEL, tiny_files)
    assert fetcher.tokenizer(pin=tmp_path).name == commit
    moved = hub.add_model(MODEL, tiny_files | {"tokenizer.json": b"{}"})
    hub.requests.clear()
    assert fetcher.weights(pin=tmp_path).name == commit
    assert not hub.count("GET /api/models/org/tiny")
    assert fetcher.weights().name == moved


@pytest.mark.usefixtures("small_chunks")
def test_a_cut_connection_goes_on_where_it_was(hub: Any, fetcher: Any, tiny_files: dict[str, bytes], make_answer: Callable[..., Any]) -> None:
    hub.add_model(MODEL, tiny_files)
    hub.answers = [make_answer("GET /stored/*", cut_after=100_000)]
    assert (fetcher.weights() / "model.safetensors").read_bytes() == tiny_files["model.safetensors"]
    ranges = [request.headers.get("range") for request in hub.requests if request.path.startswith("/stored/") and request.method == "GET"]
    assert ranges == [None, "bytes=98304-"]


PROGRAM = """
import sys
from stoker_engine.config import ModelConfig
from stoker_engine.model_fetch import fetch_weights
print(fetch_weights(ModelConfig(uri=sys.argv[1]), sys.argv[2], None).wait(lambda download, message: None))
"""


def test_two_processes_download_each_file_once(hub: Any, fetcher: Any, tiny_files: dict[str, bytes]) -> None:
    hub.add_model(MODEL, tiny_files)
    hub.gate.clear()
    command = [sys.executable, "-c", PROGRAM, f"hf://{MODEL}", str(fetcher.cache_dir)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    deadline = time.monotonic() + 30
    while hub.count(f"GET /api/models/{MODEL}") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    hub.gate.set()
    paths = {process.communicate(timeout=30)[0].strip() for process in processes}
    assert len(paths) == 1 and [process.returncode for process in processes] == [0, 0]
    assert hub.count("GET /stored/*") == 1
    assert set(hub.downloads().values()) == {1}
    assert (Path(paths.pop()) / "model.safetensors").read_bytes() == tiny_files["model.safetensors"]


def test_partial_files_of_killed_downloads_are_removed_and_others_kept(hub: Any, fetcher: Any, tiny_files: dict[str, bytes]) -> None:
    hub.add_model(MODEL, tiny_files)
    blobs = fetcher.cache_dir / "models--org--tiny" / "blobs"
    blobs.mkdir(parents=True)
    (fetcher.cache_dir / ".locks" / "models--org--tiny").mkdir(parents=True)
    orphan, fresh = blobs / "aa.1234abcd.incomplete", blobs / "bb.1234abcd.incomplete"
    for path in (orphan, fresh):
        path.write_bytes(b"part")
    os.utime(orphan, (time.time() - 3600, time.time() - 3600))
    fetcher.weights()
    assert fresh.exists() and not orphan.exists()


@pytest.mark.usefixtures("small_chunks")
def test_progress_is_told_while_the_bytes_come(hub: Any, fetcher: Any, tiny_files: dict[str, bytes]) -> None:
    hub.add_model(MODEL, tiny_files)
    fetcher.tokenizer()
    fetcher.reports.clear()
    hub.bytes_per_second = 200_000.0
    fetcher.weights()
    under_way = [download for download, _ in fetcher.reports if 0 < download.bytes < download.size_bytes and download.eta_seconds is not None]
    assert under_way and all(download.bytes_per_second for download in under_way)
    assert fetcher.reports[-1][0].share == 1.0 and fetcher.reports[-1][0].eta_seconds is None
