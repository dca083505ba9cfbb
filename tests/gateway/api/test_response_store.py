from typing import Any

import pytest

from stoker_gateway.api.responses.items import new_id
from stoker_gateway.api.responses.store import EventLog, ResponseStore, StoredResponse, conversation_bytes
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.responses.protocol import InputMessage, InputText, ReasoningResponse, Response, TextConfigResponse, TextFormatResponse


def stored(name: str, num_bytes: int = 1, status: Any = "completed") -> StoredResponse:
    fields: dict[str, Any] = dict.fromkeys(("instructions", "max_output_tokens", "previous_response_id", "prompt_cache_key", "safety_identifier", "user"), None)
    numbers: dict[str, Any] = dict.fromkeys(("created_at", "frequency_penalty", "presence_penalty", "temperature", "top_logprobs", "top_p"), 0)
    defaults: dict[str, Any] = {"parallel_tool_calls": True, "reasoning": ReasoningResponse(), "tool_choice": "auto", "tools": []}
    text = TextConfigResponse(TextFormatResponse("text"))
    response = Response(id=name, status=status, background=False, metadata={}, model="m", store=True, text=text, **fields, **numbers, **defaults)
    return StoredResponse(response, [], num_bytes=num_bytes)


def test_the_oldest_make_room() -> None:
    store = ResponseStore(max_responses=3, max_bytes=100)
    for index in range(5):
        assert store.put(stored(str(index)))
    assert [store.find(str(index)) is not None for index in range(5)] == [False, False, True, True, True]
    assert store.put(stored("large", 99)) and len(store) == 2 and store.num_bytes == 100


def test_what_is_larger_than_the_store_is_not_kept() -> None:
    store = ResponseStore(max_responses=3, max_bytes=100)
    assert not store.put(stored("a", 101)) and len(store) == 0 and store.num_bytes == 0


def test_what_finds_no_room_takes_nothing_from_others() -> None:
    store = ResponseStore(max_responses=4, max_bytes=100)
    running = stored("running", 50, "in_progress")
    store.put_running(running)
    assert store.put(stored("a", 25)) and store.put(stored("b", 25))
    with pytest.raises(ApiError, match="background"):
        store.put_running(stored("large", 51, "queued"))
    assert not store.put(stored("over", 51)) and not store.grow(running, 51)
    assert store.find("a") and store.find("b") and store.num_bytes == 100
    assert store.put(stored("last", 50)) and (len(store), store.num_bytes) == (2, 100)


def test_what_grows_takes_the_room_of_what_is_over() -> None:
    store = ResponseStore(max_responses=4, max_bytes=100)
    running = stored("running", 50, "in_progress")
    store.put_running(running)
    assert store.put(stored("old", 20)) and store.put(stored("new", 30))
    assert store.grow(running, 20) and not store.find("old") and store.find("new")
    assert (store.num_bytes, running.num_bytes) == (100, 70)
    store.remove("running")
    assert store.grow(running, 1000) and store.num_bytes == 30


def test_what_still_runs_stays() -> None:
    store = ResponseStore(max_responses=2, max_bytes=100)
    store.put_running(stored("running", 90, "queued"))
    store.put_running(stored("too", 10, "in_progress"))
    with pytest.raises(ApiError, match="background") as caught:
        store.put_running(stored("third", 1, "queued"))
    assert caught.value.status == 429 and caught.value.headers["Retry-After"]
    assert not store.put(stored("over")) and len(store) == 2


def test_replacing_counts_once() -> None:
    store = ResponseStore(max_responses=2, max_bytes=100)
    store.put(stored("a", 60))
    assert store.put(stored("a", 70)) and store.num_bytes == 70
    store.remove("a")
    store.remove("a")
    assert store.num_bytes == 0


def test_a_conversation_weighs_at_least_its_text() -> None:
    message = InputMessage(id=new_id("msg"), role="user", content=[InputText("x" * 1000), InputText("é" * 1000)])
    assert conversation_bytes([message, message]) > 4000


async def test_a_log_is_read_from_anywhere_while_it_grows() -> None:
    log = EventLog()
    log.add(b"a")
    reader, late = log.follow(0), log.follow(2)
    assert await anext(reader) == b"a"
    log.add(b"b")
    log.add(b"c")
    assert (await anext(reader), await anext(late)) == (b"bc", b"c")
    log.end()
    assert [rest async for rest in reader] == [rest async for rest in late] == []
    assert [data async for data in log.follow(0)] == [b"abc"]
    assert [data async for data in log.follow(9)] == []
