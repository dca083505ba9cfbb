from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from stoker_engine.errors import QueueFullError
from stoker_engine.outputs import CompletionOutput, RequestOutput
from stoker_engine.sampling_params import SamplingParams
from stoker_gateway.api.responses.room import Room
from stoker_gateway.api.responses.store import EventLog, ResponseStore, StoredResponse
from stoker_gateway.openai.decode import decode_request
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.responses.protocol import ReasoningResponse, Response, TextConfigResponse, TextFormatResponse
from stoker_gateway.openai.responses.request import RESPONSES_RULES, ResponsesRequest


def running(*, is_stream: bool, **fields: Any) -> StoredResponse:
    nothing: dict[str, Any] = dict.fromkeys(
        ("instructions", "max_output_tokens", "previous_response_id", "prompt_cache_key", "safety_identifier", "user"), None
    )
    numbers: dict[str, Any] = dict.fromkeys(("created_at", "frequency_penalty", "presence_penalty", "temperature", "top_logprobs", "top_p"), 0)
    defaults: dict[str, Any] = {"parallel_tool_calls": True, "reasoning": ReasoningResponse(), "tool_choice": "auto", "tools": [], "metadata": {}}
    defaults |= {"id": "a", "status": "queued", "background": True, "model": "m", "store": True, "text": TextConfigResponse(TextFormatResponse("text"))}
    stored = StoredResponse(Response(**(nothing | numbers | defaults | fields)), [])
    stored.events = EventLog() if is_stream else None
    return stored


def test_an_idle_server_takes_a_stream_without_max_output_tokens() -> None:
    store, stored = ResponseStore(), running(is_stream=True)
    Room(store, stored, SamplingParams(max_tokens=None, logprobs=20)).reserve()
    assert 0 < store.num_bytes == stored.num_bytes < 10_000


@pytest.mark.parametrize("is_stream", [True, False])
def test_what_could_never_be_kept_is_a_bad_request_that_names_the_most(*, is_stream: bool) -> None:
    store = ResponseStore(max_bytes=100_000)
    with pytest.raises(ApiError, match="max_output_tokens must be at most") as caught:
        Room(store, running(is_stream=is_stream, max_output_tokens=1_000_000), SamplingParams()).reserve()
    assert (caught.value.status, caught.value.param, len(store)) == (400, "max_output_tokens", 0)
    most = int(caught.value.message.removeprefix("max_output_tokens must be at most ").split()[0])
    Room(store, running(is_stream=is_stream, max_output_tokens=most), SamplingParams()).reserve()
    assert store.num_bytes < 100_000


def test_the_response_itself_counts() -> None:
    store = ResponseStore(max_bytes=100_000)
    with pytest.raises(ApiError, match="too large") as caught:
        Room(store, running(is_stream=False, instructions="x" * 100_000), SamplingParams()).reserve()
    assert (caught.value.status, caught.value.param) == (400, "background")
    Room(store, running(is_stream=False, instructions="x" * 50_000), SamplingParams()).reserve()
    with pytest.raises(ApiError, match="try again") as caught:
        Room(store, running(is_stream=False, id="b", instructions="x" * 50_000), SamplingParams()).reserve()
    assert caught.value.status == 429


async def outputs(closed: list[bool]) -> Any:
    try:
        while True:
            choice = CompletionOutput(index=0, text="word " * 100, token_ids=[1] * 100)
            yield RequestOutput(request_id="a", prompt=None, prompt_token_ids=[1], outputs=[choice], finished=False)
    finally:
        closed.append(True)


@pytest.mark.parametrize("is_stream", [True, False])
async def test_an_answer_is_charged_as_it_grows_and_ends_where_there_is_no_room(*, is_stream: bool) -> None:
    closed: list[bool] = []
    store, stored = ResponseStore(max_bytes=20_000), running(is_stream=is_stream)
    room = Room(store, stored, SamplingParams())
    room.reserve()
    sizes = []
    charged: AsyncIterator[RequestOutput] = room.charged(outputs(closed))
    with pytest.raises(QueueFullError, match="cut short"):
        async for _ in charged:
            sizes.append(store.num_bytes)
            if stored.events is not None:
                stored.events.add(b"x" * 1000)
    growth = {after - before for before, after in pairwise(sizes)}
    assert closed == [True] and growth == ({6 * 500 + 1000 + 33} if is_stream else {2 * 500}) and len(sizes) > 2


@pytest.mark.parametrize("name", ["user", "safety_identifier", "prompt_cache_key"])
def test_a_label_that_is_kept_is_bounded(name: str) -> None:
    def decode(length: int) -> ResponsesRequest:
        return decode_request(msgspec.json.encode({"model": "m", "input": "x", name: "é" * length}), ResponsesRequest, RESPONSES_RULES)

    assert getattr(decode(512), name)
    with pytest.raises(ApiError, match=f"Invalid value for '{name}'") as caught:
        decode(513)
    assert caught.value.param == name
