"""What a hub refuses, limits and fails at, told so that somebody can act on it."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from stoker_engine.config import ModelConfig
from stoker_engine.errors import ConfigError, ModelLoadError, StartupTimeoutError
from stoker_engine.hub.session import MAX_FAILURES, _wait_of
from stoker_engine.model_fetch import fetch_weights

MODEL = "org/tiny"
GATED = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to model org/tiny is restricted."}


def test_a_private_model_wants_a_token(hub: Any, fetcher: Any, tiny_files: dict[str, bytes]) -> None:
    hub.add_model(MODEL, tiny_files)
    hub.token = "hf_right"
    with pytest.raises(ModelLoadError, match=r"'hf://org/tiny' \(revision 'main'\) to nobody without a token.*set HF_TOKEN.*credentialsSecretRef") as caught:
        fetcher.weights()
    assert caught.value.reason == "AuthRequired"


def test_a_token_that_is_not_accepted_is_told_and_never_shown(
    hub: Any, fetcher: Any, tiny_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hub.add_model(MODEL, tiny_files)
    hub.token = "hf_right"
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ModelLoadError, match=r"refuses .* to the token in HF_TOKEN") as caught:
        fetcher.weights()
    assert "hf_wrong" not in caplog.text + str(caught.value)


def test_the_token_goes_to_the_hub_alone(hub: Any, fetcher: Any, tiny_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add_model(MODEL, tiny_files)
    hub.token = "hf_right"
    monkeypatch.setenv("HF_TOKEN", "hf_right\n")
    fetcher.weights()
    told = {request.path.startswith("/stored/"): request.headers.get("authorization") for request in hub.requests}
    assert told == {False: "Bearer hf_right", True: None}


def test_a_gated_model_says_where_to_ask(hub: Any, fetcher: Any, tiny_files: dict[str, bytes], make_answer: Callable[..., Any]) -> None:
    hub.add_model(MODEL, tiny_files)
    hub.answers = [make_answer("GET /api/models/*", status=403, headers=GATED)]
    with pytest.raises(ModelLoadError, match="is gated: ask for access on its page") as caught:
        fetcher.weights()
    assert caught.value.reason == "AuthRequired"


def test_a_model_gated_for_its_files_only_says_so_too(hub: Any, fetcher: Any, tiny_files: dict[str, bytes], make_answer: Callable[..., Any]) -> None:
    hub.add_model(MODEL, tiny_files)
    hub.answers = [make_answer("HEAD */resolve/*", status=403, headers=GATED, times=100)]
    with pytest.raises(ModelLoadError, match="is gated: ask for access on its page"):
        fetcher.weights()


def test_what_the_hub_lacks_is_named(hub: Any, fetcher: Any, tiny_files: dict[str, bytes]) -> None:
    hub.add_model(MODEL, tiny_files)
    with pytest.raises(ModelLoadError, match=r"has no repository for 'hf://org/other' \(revision 'main'\)"):
        fetcher.weights("hf://org/other")
    with pytest.raises(ModelLoadError, match="has no revision 'v9' of 'hf://org/tiny'"):
        fetcher.weights(revision="v9")
    with pytest.raises(ModelLoadError, match=r"has no (revision|repository)"):
        fetcher.weights(revision="0" * 40)


def test_a_rate_limit_is_waited_for_and_told(hub: Any, fetcher: Any, tiny_files: dict[str, bytes], make_answer: Callable[..., Any]) -> None:
    hub.add_model(MODEL, tiny_files)
    hub.answers = [
        make_answer("GET /api/models/org/tiny", status=429, headers={"Retry-After": "0"}),
        make_answer("GET /stored/*", status=429, headers={"RateLimit": '"pages";r=0;t=0'}),
    ]
    fetcher.weights()
    assert len(fetcher.messages) == 2 and all("limits the rate of requests (429)" in message for message in fetcher.messages)
    assert fetcher.reports[-1][1] == ""


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "12"}, 13.0),
        ({"RateLimit": '"api";r=0;t=55'}, 56.0),
        ({"RateLimit": '"api"; r=0; t=7'}, 8.0),
        ({"Retry-After": "tomorrow"}, None),
        ({}, None),
    ],
)
def test_the_wait_is_the_one_that_the_hub_asks_for(headers: dict[str, str], wait: float | None) -> None:
    assert _wait_of(httpx2.Response(429, headers=headers)) == wait


def test_a_rate_limit_without_end_ends_with_the_start(hub: Any, tmp_path: Path, tiny_files: dict[str, bytes], make_answer: Callable[..., Any]) -> None:
    hub.add_model(MODEL, tiny_files)
    hub.answers = [make_answer("GET /api/models/*", status=429, headers={"Retry-After": "60"}, times=100)]
    with pytest.raises(StartupTimeoutError, match=r"not downloaded after 0 s \(startupTimeout\).*limits the rate of requests \(429\)"):
        fetch_weights(ModelConfig(uri=f"hf://{MODEL}"), str(tmp_path), None).wait(lambda download, message: None, 0.2)


@pytest.mark.usefixtures("short_waits")
def test_a_failing_hub_is_asked_again_and_then_told(hub: Any, fetcher: Any, tiny_files: dict[str, bytes], make_answer: Callable[..., Any]) -> None:
    hub.add_model(MODEL, tiny_files)
    hub.answers = [make_answer("GET /api/models/org/tiny", status=503, times=MAX_FAILURES - 1)]
    fetcher.weights()
    hub.answers = [make_answer("GET /api/models/org/tiny/revision/v1", status=500, times=100)]
    with pytest.raises(ModelLoadError, match=rf"\(revision 'v1'\): http://.* answered 500 \({MAX_FAILURES} attempts\)") as caught:
        fetcher.weights(revision="v1")
    assert caught.value.reason == "DownloadFailed"
    assert hub.count("GET /api/models/org/tiny/revision/v1") == MAX_FAILURES


@pytest.mark.usefixtures("short_waits")
def test_a_hub_that_is_down_is_told_unless_the_cache_has_the_model(
    hub: Any, fetcher: Any, tiny_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hub.add_model(MODEL, tiny_files)
    path = fetcher.weights()
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert fetcher.weights() == path
    assert "does not answer" in caplog.text
    with pytest.raises(ModelLoadError, match=r"cannot reach http://127\.0\.0\.1:9: ConnectError"):
        fetcher.weights("hf://org/other")


def test_a_server_that_is_no_hub_is_told(hub: Any, fetcher: Any, tiny_files: dict[str, bytes], make_answer: Callable[..., Any]) -> None:
    hub.add_model(MODEL, tiny_files)
    hub.answers = [make_answer("HEAD */resolve/*", status=200, times=100)]
    with pytest.raises(ModelLoadError, match="does not answer as a hub does"):
        fetcher.weights()


def test_offline_the_cache_is_all_there_is(hub: Any, fetcher: Any, tiny_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add_model(MODEL, tiny_files)
    fetcher.tokenizer()
    hub.requests.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    fetcher.tokenizer()
    with pytest.raises(ModelLoadError, match=r"HF_HUB_OFFLINE is set, and .* lacks 'hf://org/tiny' .*: model\.safetensors is not in the cache"):
        fetcher.weights()
    with pytest.raises(ModelLoadError, match=r"lacks 'hf://org/other' \(revision 'v1'\): it was never downloaded at this revision"):
        fetcher.weights("hf://org/other", revision="v1")
    assert not hub.requests


def test_a_cache_that_cannot_be_written_is_named(hub: Any, fetcher: Any, tiny_files: dict[str, bytes], tmp_path: Path) -> None:
    hub.add_model(MODEL, tiny_files)
    (tmp_path / "file").touch()
    fetcher.cache_dir = tmp_path / "file" / "cache"
    with pytest.raises(ConfigError, match=r"model_cache_dir: cannot write .*/file/cache: Not a directory; name a directory that this user may write"):
        fetcher.weights()


IN_A_SMALL_MOUNT = """
import json, subprocess, sys
from stoker_engine.config import ModelConfig
from stoker_engine.errors import EngineError
from stoker_engine.hub import download
from stoker_engine.model_fetch import fetch_tokenizer, fetch_weights

folder, uri = sys.argv[1:]
said = []
def fetch(part):
    try:
        said.append(part(ModelConfig(uri=uri), folder, None).wait(lambda download, message: None).name)
    except EngineError as error:
        said.append(f"{type(error).__name__}: {error}")
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", folder], check=True)
fetch(fetch_tokenizer)
fetch(fetch_weights)
download.HubDownload._require_room = lambda self, chosen: None  # as where a quota says less than the file system
fetch(fetch_weights)
subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
fetch(fetch_tokenizer)
fetch(fetch_weights)
print(json.dumps(said))
"""


@pytest.mark.skipif(subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode != 0, reason="needs mount namespaces")
def test_a_full_or_read_only_disk_is_told_and_serves_what_it_has(hub: Any, tiny_files: dict[str, bytes], tmp_path: Path) -> None:
    commit = hub.add_model(MODEL, tiny_files)
    command = ["unshare", "-rm", sys.executable, "-c", IN_A_SMALL_MOUNT, str(tmp_path), f"hf://{MODEL}"]
    said = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | {"PYTHONWARNINGS": "ignore"}).stdout)
    assert said[0] == said[3] == commit
    assert said[1].startswith(f"DiskFullError: model_cache_dir: {tmp_path} has ") and "give it a larger volume" in said[1]
    assert said[2].startswith(f"DiskFullError: model_cache_dir: {tmp_path} is full: 'hf://org/tiny'")
    assert said[4].startswith(f"ConfigError: model_cache_dir: cannot write {tmp_path}: Read-only file system")
