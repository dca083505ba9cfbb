import hashlib
import hmac
import os
from pathlib import Path

import pytest

from stoker_engine.errors import ConfigError
from stoker_gateway.api import api_keys
from stoker_gateway.api.api_keys import ApiKeys


@pytest.fixture(autouse=True)
def _look_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "LOOK_SECONDS", 0.0)


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """As the kubelet mounts a Secret: the file is behind a link to a directory, and another link takes its place."""
    for version, key in (("1", "old"), ("2", "new")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "keys").write_text(f"{key}\n", encoding="utf-8")
    (tmp_path / "..data").symlink_to("1")
    return tmp_path


def exchange(mounted: Path) -> None:
    (mounted / "next").symlink_to("2")
    os.replace(mounted / "next", mounted / "..data")


def test_keys_that_a_mounted_secret_exchanges_are_heeded(mounted: Path) -> None:
    keys = ApiKeys(mounted / "..data" / "keys")
    assert [keys.allow(key) for key in ("old", "new", "", "ol", "old\n")] == [True, False, False, False, False]
    exchange(mounted)
    assert [keys.allow(key) for key in ("old", "new")] == [False, True]


def test_keys_that_cannot_be_read_again_stay(mounted: Path) -> None:
    keys = ApiKeys(mounted / "..data" / "keys")
    (mounted / "..data").unlink()
    assert keys.allow("old")
    (mounted / "..data").mkdir()
    (mounted / "..data" / "keys").write_bytes(b"\xff")
    assert keys.allow("old")


def test_a_file_without_keys_any_more_takes_all_of_them_back(mounted: Path) -> None:
    keys = ApiKeys(mounted / "1" / "keys")
    (mounted / "1" / "keys").write_text("", encoding="utf-8")
    assert not keys.allow("old") and not keys.allow("")


def test_a_request_costs_one_digest_however_many_keys_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    file.write_text("".join(f"{index}\n" for index in range(20_000)), encoding="utf-8")
    keys = ApiKeys(file)
    digests: list[bytes] = []
    digest = hmac.digest

    def counted(key: bytes, message: bytes, name: str) -> bytes:
        digests.append(digest(key, message, name))
        return digests[-1]

    monkeypatch.setattr(hmac, "digest", counted)
    assert keys.allow("0") and keys.allow("19999") and not keys.allow("20000")
    assert len(digests) == 3 and digests[0] not in (hashlib.sha256(b"0").digest(), ApiKeys(file)._digest("0"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        (b"# none\n\n", "has no key"),
        (b"\xff\n", "cannot be read"),
        (b"good\n\xc3\xbc\n", "line 2 is no key"),
        (b"two words\n", "line 1"),
        (b"k" * 2**21, "larger"),
    ],
)
def test_a_file_without_keys_at_the_start_is_a_bad_setting(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"--api-keys-file: {file} .*{words}"):
        ApiKeys(file)
