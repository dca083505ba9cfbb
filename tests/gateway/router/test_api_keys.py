import asyncio
import json
import os
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from stoker_engine.errors import ConfigError
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.router.admission.admission import Admission
from stoker_gateway.router.admission.answer_tokens import AnswerTokens
from stoker_gateway.router.admission.budget import Budget
from stoker_gateway.router.admission.caller import ANYONE, Caller
from stoker_gateway.router.admission.key_file import parse_key_file
from stoker_gateway.router.admission.key_ring import KeyRing

DEADLINE_SECONDS = 20.0


def _digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def _entry(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "sha256": _digest(f"key-of-{name}"), **more}


def _write(path: Path, *entries: object) -> Path:
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"keys": entries}))
    os.replace(new, path)
    return path


async def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def test_a_budget_fills_evenly_and_never_beyond_a_minute() -> None:
    budget = Budget(60, now=0.0)
    budget.take(60, 0.0)
    assert budget.wait_seconds(0.0) == 1.0
    assert budget.wait_seconds(1.0) == 0.0
    budget.take(120, 1000.0)
    assert budget.wait_seconds(1000.0) == 61.0


def test_a_budget_that_changes_keeps_what_was_used() -> None:
    budget = Budget(60, now=0.0)
    budget.take(30, 0.0)
    budget.change(30, 0.0)
    assert budget.wait_seconds(0.0) == 2.0
    budget.change(1000, 0.0)
    assert budget.wait_seconds(0.0) == 0.0


def test_a_caller_has_its_requests_and_tokens_and_is_told_when_to_come_back() -> None:
    (entry,) = parse_key_file(json.dumps({"keys": [_entry("a", requestsPerMinute=2, tokensPerMinute=600)]}).encode()).entries
    caller = Caller("a")
    caller.update(entry, 0.0)
    assert caller.start_request(0.0) is None
    assert caller.start_request(0.0) is None
    refusal = caller.start_request(0.0)
    assert refusal is not None and refusal.status == 429 and refusal.headers["Retry-After"] == "30" and "requests" in refusal.message
    caller.charge(1200, 0.0)
    refusal = caller.start_request(60.0)
    assert refusal is not None and refusal.status == 429 and refusal.headers["Retry-After"] == "1" and "tokens" in refusal.message
    assert caller.start_request(61.0) is None


def test_a_broken_entry_costs_the_others_nothing_and_is_told_with_its_place() -> None:
    entries = [
        _entry("a"),
        "nonsense",
        _entry("b", priority="high"),
        {"name": "c", "sha256": "abc"},
        _entry("a"),
        {**_entry("d"), "sha256": _digest("key-of-a")},
    ]
    file = parse_key_file(json.dumps({"keys": [*entries, _entry("e")]}).encode())
    assert [entry.name for entry in file.entries] == ["a", "e"]
    assert [fault.partition(":")[0] for fault in file.faults] == ["keys[1]", "keys[2]", "keys[3]", "keys[4]", "keys[5]"]
    assert "priority" in file.faults[1] and "'a'" in file.faults[3]


def test_a_name_may_have_two_keys_while_one_takes_the_others_place(tmp_path: Path) -> None:
    both = {"name": "a", "sha256": [_digest("key-of-a"), _digest("new")]}
    file = parse_key_file(json.dumps({"keys": [both, {"name": "b", "sha256": [_digest("new")]}, {"name": "c", "sha256": []}]}).encode())
    assert [entry.name for entry in file.entries] == ["a"] and "same key as 'a'" in file.faults[0]
    ring = KeyRing(_write(tmp_path / "keys", both))
    assert ring.find(b"key-of-a") is ring.find(b"new")


@pytest.mark.parametrize("content", [b"", b"[]", b"keys: 3", b"keys: [", b"\xff\xfe\x00", b"a" * (1 << 20) + b"a", b"[" * 100_000])
def test_what_is_no_file_of_keys_is_refused_whole(content: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        parse_key_file(content)


def test_a_file_may_be_yaml() -> None:
    (entry,) = parse_key_file(f"keys:\n- name: team-a\n  sha256: {_digest('x')}\n  tokensPerMinute: 1000\n".encode()).entries
    assert entry.name == "team-a" and entry.tokens_per_minute == 1000


def test_a_ring_needs_one_key_that_can_be_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"keys\[0\]"):
        KeyRing(_write(tmp_path / "keys.yaml", {"name": "a"}))
    with pytest.raises(ConfigError, match="cannot be read"):
        KeyRing(tmp_path / "none.yaml")


@pytest.mark.parametrize("headers", [[(b"authorization", b"Bearer key-of-a")], [(b"authorization", b"bearer  key-of-a ")], [(b"x-api-key", b"key-of-a")]])
def test_a_key_is_known_by_its_digest(tmp_path: Path, headers: list[tuple[bytes, bytes]]) -> None:
    admission = Admission(KeyRing(_write(tmp_path / "keys.yaml", _entry("a"))))
    assert admission.caller(headers).name == "a"


@pytest.mark.parametrize("headers", [[], [(b"authorization", b"Basic key-of-a")], [(b"x-api-key", b"wrong")], [(b"authorization", b"Bearer \xff\xfe")]])
def test_without_a_key_that_is_known_nobody_is_let_in(tmp_path: Path, headers: list[tuple[bytes, bytes]]) -> None:
    admission = Admission(KeyRing(_write(tmp_path / "keys.yaml", _entry("a"))))
    with pytest.raises(ApiError) as refused:
        admission.caller(headers)
    assert refused.value.status == 401


def test_without_a_file_everybody_is_let_in() -> None:
    admission = Admission(None)
    admission.start_request(admission.caller([]))
    assert admission.caller([]) is ANYONE


def test_a_key_beyond_ascii_is_found_as_it_was_hashed(tmp_path: Path) -> None:
    admission = Admission(KeyRing(_write(tmp_path / "keys.yaml", {"name": "a", "sha256": _digest("schlüssel")})))
    for header in ((b"authorization", "Bearer schlüssel".encode()), (b"x-api-key", "schlüssel".encode())):
        assert admission.caller([header]).name == "a"


async def test_keys_change_with_their_file_and_keep_what_they_have_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker_gateway.router.admission.key_ring.LOOK_SECONDS", 0.01)
    path = _write(tmp_path / "keys.yaml", _entry("a", requestsPerMinute=1), _entry("b"))
    ring = KeyRing(path)
    watching = asyncio.create_task(ring.watch())
    caller = ring.find(b"key-of-a")
    assert caller.start_request(time.monotonic()) is None
    _write(path, {**_entry("a", requestsPerMinute=1), "sha256": _digest("another key")}, _entry("c"), "broken")
    await _until(lambda: ring.faults != ())
    assert ring.find(b"another key") is caller and caller.start_request(time.monotonic()) is not None
    assert ring.find(b"key-of-c").name == "c"
    for gone in (b"key-of-a", b"key-of-b"):
        with pytest.raises(ApiError):
            ring.find(gone)
    path.write_text("keys: [")
    await _until(lambda: ring.faults[0].startswith("it cannot be read"))
    assert ring.find(b"key-of-c").name == "c"
    watching.cancel()


@pytest.mark.parametrize(
    ("pieces", "total"),
    [
        ([b'{"choices":[{"message":{"content":"\\"total_tokens\\": 9"}}],"usage":{"prompt_tokens":5,"total_tokens":', b"12}}"], 12),
        ([b'data: {"choices":[]}\n\n'] * 7, 7 + 100),
        ([b'data: {"choices":[]}\n\n', b'data: {"usage":{"total_tokens":30}}\n\ndata: [DONE]\n\n'], 30),
        ([b'data: {"message":{"usage":{"input_tokens":20,"output_tokens":1}}}\n\n', b"x" * 5000, b'data: {"usage":{"output_tokens":8}}\n\n'], 28),
        ([b'{"choices":[{"message":{"content":"', b"x" * 366], 100 + 100),
        ([], 100),
    ],
)
def test_the_tokens_of_an_answer_are_read_off_its_end_or_counted(pieces: list[bytes], total: int) -> None:
    tokens = AnswerTokens()
    for piece in pieces:
        tokens.add(piece)
    assert tokens.total(400) == total
