import asyncio

import pytest
from starlette.requests import Request
from starlette.types import Message

from stoker_gateway.api import body
from stoker_gateway.api.body import read_json_body
from stoker_gateway.http import drain as drain_module
from stoker_gateway.http.drain import Drain
from stoker_gateway.openai.errors import ApiError


def request_of(*pieces: bytes) -> Request:
    """One whose body never ends."""
    waiting = iter(pieces)

    async def receive() -> Message:
        for piece in waiting:
            return {"type": "http.request", "body": piece, "more_body": True}
        await asyncio.Event().wait()
        raise AssertionError

    return Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)


async def test_a_body_of_which_nothing_more_comes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "CHUNK_SECONDS", 0.01)
    with pytest.raises(ApiError) as caught:
        await read_json_body(request_of(b"{", b'"a"'), 1024, Drain(1.0))
    assert (caught.value.status, caught.value.code, caught.value.headers["Connection"]) == (408, "request_too_slow", "close")


async def test_a_drain_waits_for_it_even_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "ARRIVAL_SECONDS", 0.01)
    drain = Drain(1.0)
    reading = asyncio.create_task(read_json_body(request_of(b"{"), 1024, drain))
    await asyncio.sleep(0)
    drain.request_stop()
    with pytest.raises(ApiError) as caught:
        await reading
    assert caught.value.code == "draining"
