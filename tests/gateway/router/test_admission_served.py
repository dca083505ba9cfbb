"""The gateway's process with keys, before a small HTTP server."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from stoker_gateway.openai.errors import model_not_found
from stoker_gateway.router.exchange import Exchange
from stoker_gateway.router.held_stream import Heartbeats, error_of

DEADLINE_SECONDS = 30.0
README = Path(__file__).parents[3] / "gateway" / "README.md"
ANSWER = json.dumps({"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 60, "total_tokens": 100}}).encode()


@dataclass
class _Replica:
    """Answers every POST with 100 tokens, once `may_answer` is set."""

    is_ready: bool = True
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    num_asked: int = 0
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if head.startswith(b"GET"):
                status = b"200 OK" if self.is_ready else b"503 Not Ready"
                writer.write(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % status)
                continue
            length = next(line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length))
            self.num_asked += 1
            await self.may_answer.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER))


async def _serve_and_close(replica: _Replica, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await replica.serve(reader, writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        return
    finally:
        writer.close()


@asynccontextmanager
async def _replica() -> AsyncIterator[_Replica]:
    replica = _Replica()
    async with await asyncio.start_server(lambda reader, writer: _serve_and_close(replica, reader, writer), "127.0.0.1", 0) as server:
        replica.port = server.sockets[0].getsockname()[1]
        yield replica
        server.close()


@asynccontextmanager
async def _gateway(tmp_path: Path, *flags: str) -> AsyncIterator[httpx.AsyncClient]:
    command = (sys.executable, "-m", "stoker_gateway.router", "--host=127.0.0.1", "--port=0", "--drain-delay=0s", f"--termination-message-path={tmp_path}/end")
    process = await asyncio.create_subprocess_exec(*command, *flags, stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while b"serving on " not in (line := await process.stderr.readline()):
                assert line, "the gateway ended"
        address = line.decode().split("serving on ")[1].split()[0].strip()
        reading = asyncio.create_task(process.stderr.read())
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=DEADLINE_SECONDS, limits=limits) as client:

            async def is_synced() -> bool:
                return (await client.get("/readyz")).status_code == 200

            await _until(is_synced)
            yield client
    finally:
        os.kill(process.pid, signal.SIGTERM)
        await process.wait()
    await reading


async def _until(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not await condition():
            await asyncio.sleep(0.02)


async def _samples(client: httpx.AsyncClient) -> dict[tuple[str, ...], float]:
    page = (await client.get("/metrics")).text
    return {(sample.name, *sample.labels.values()): sample.value for family in text_string_to_metric_families(page) for sample in family.samples}


def _family(name: str) -> str:
    for suffix in ("_bucket", "_count", "_sum"):
        name = name.removesuffix(suffix)
    return name.removeprefix("stoker_gateway_")


def _static_model(replica: _Replica, **queue: object) -> str:
    return "--static-model=" + json.dumps({"name": "m", "endpoints": [f"127.0.0.1:{replica.port}"], "traffic": {"queue": queue}})


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_requests_are_let_in_by_keys_held_without_replicas_and_counted(tmp_path: Path) -> None:
    keys = [
        {"name": "a", "sha256": sha256(b"key-a").hexdigest(), "requestsPerMinute": 2},
        {"name": "b", "sha256": sha256(b"key-b").hexdigest(), "tokensPerMinute": 150},
        {"name": "c", "sha256": sha256(b"key-c").hexdigest(), "tokensPerMinute": 150},
        {"name": "broken"},
    ]
    (tmp_path / "keys.json").write_text(json.dumps({"keys": keys}))
    body = {"model": "m", "messages": []}
    async with _replica() as replica, _gateway(tmp_path, _static_model(replica), f"--api-keys-file={tmp_path}/keys.json") as client:
        replica.may_answer.set()

        async def ask(key: str, **more: object) -> httpx.Response:
            return await client.post("/v1/chat/completions", json={**body, **more}, headers=_bearer(key))

        assert (await client.post("/v1/chat/completions", json=body)).status_code == 401
        assert (await client.get("/v1/models", headers=_bearer("wrong"))).status_code == 401
        assert (await client.get("/v1/models", headers={"x-api-key": "key-a"})).status_code == 200
        assert (await client.get("/readyz")).status_code == 200

        by_requests = [await ask("key-a") for _ in range(3)]
        assert [answer.status_code for answer in by_requests] == [200, 200, 429]
        assert 1 <= int(by_requests[2].headers["retry-after"]) <= 30
        assert by_requests[2].json()["error"]["code"] == "rate_limit_exceeded"
        by_tokens = [await ask("key-b") for _ in range(3)]
        assert [answer.status_code for answer in by_tokens] == [200, 200, 429]

        counted = [await client.post("/v1/messages/count_tokens", json=body, headers=_bearer("key-c")) for _ in range(3)]
        assert [answer.status_code for answer in counted] == [200, 200, 200]

        async with asyncio.TaskGroup() as group:
            for index in range(30):
                group.create_task(client.post("/v1/chat/completions", json={**body, "model": f"stranger-{index}"}, headers=_bearer("key-b")))
                group.create_task(client.post(f"/nowhere/{index}", json=body))
        samples = await _samples(client)
        assert samples["stoker_gateway_http_requests_total", "m", "/v1/chat/completions", "200"] == 4
        assert samples["stoker_gateway_http_requests_total", "other", "/v1/chat/completions", "401"] == 1
        assert samples["stoker_gateway_key_tokens_total", "b"] == 200 and samples["stoker_gateway_key_tokens_total", "c"] == 0
        assert samples["stoker_gateway_api_key_faults",] == 1
        assert samples["stoker_gateway_endpoints", "m", "ready"] == 1
        documented = README.read_text().partition("### Numbers of the gateway")[2]
        assert [name for name, *_ in samples if name.startswith("stoker_gateway_") and f"`{_family(name)}`" not in documented] == []
        assert not [name for sample in samples for name in sample if "stranger" in name or "nowhere" in name]


@pytest.mark.case("C102")
@pytest.mark.parametrize(("num_asked", "bound"), [(50, 20), pytest.param(500, 256, marks=pytest.mark.stress)])
async def test_what_waits_for_a_model_without_replicas_is_answered_when_one_comes_unless_its_client_has_left(
    tmp_path: Path, num_asked: int, bound: int
) -> None:
    async with _replica() as replica:
        replica.is_ready = False
        async with _gateway(tmp_path, _static_model(replica, maxRequests=bound)) as client:

            async def ask(timeout: float = DEADLINE_SECONDS) -> httpx.Response:
                return await client.post("/v1/chat/completions", json={"model": "m", "messages": []}, timeout=timeout)

            async def has_left() -> bool:
                return (await _samples(client))["stoker_gateway_num_requests_waiting", "m"] == 0

            with pytest.raises(httpx.ReadTimeout):
                await ask(timeout=0.2)
            await _until(has_left)
            asked = [asyncio.create_task(ask()) for _ in range(num_asked)]

            async def are_held() -> bool:
                num_waiting = (await _samples(client)).get(("stoker_gateway_num_requests_waiting", "m"))
                return num_waiting == bound and sum(task.done() for task in asked) == num_asked - bound

            await _until(are_held)
            refused = [await task for task in asked if task.done()]
            assert {(answer.status_code, answer.headers["retry-after"]) for answer in refused} == {(503, "1")}
            replica.is_ready = True
            replica.may_answer.set()
            answers = await asyncio.gather(*asked)
            assert sum(answer.status_code == 200 for answer in answers) == bound
            assert replica.num_asked == bound


class _Lifecycle:
    is_leaving = False


async def test_a_stream_that_waits_begins_with_comments_and_ends_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker_gateway.router.held_stream.HEARTBEAT_SECONDS", 0.001)
    sent: list[Any] = []
    enough = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) > 3:
            enough.set()

    async def receive() -> Any:
        await asyncio.Event().wait()

    scope = {"headers": [], "method": "POST", "raw_path": b"/v1/chat/completions", "path": "/v1/chat/completions", "query_string": b""}
    exchange = Exchange(scope, receive, send, _Lifecycle())  # type: ignore[arg-type]
    heartbeats = Heartbeats(exchange)
    await enough.wait()
    heartbeats.stop()
    await exchange.fail(error_of(404, model_not_found("m").body()))
    assert sent[0]["status"] == 200 and (b"content-type", b"text/event-stream; charset=utf-8") in sent[0]["headers"]
    assert {message["body"][:1] for message in sent[1:-1]} == {b":"}
    event = sent[-1]["body"]
    assert json.loads(event.strip().removeprefix(b"data: "))["error"]["code"] == "model_not_found" and not sent[-1]["more_body"]


async def test_an_answer_that_says_nothing_is_an_error_all_the_same() -> None:
    assert error_of(500, b"<html>").status == 500
