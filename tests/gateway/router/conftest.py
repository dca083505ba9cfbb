"""Over real sockets: replicas that answer one thing, and a small API server that lists, watches, and applies a status."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

Manifest = dict[str, Any]
Place = tuple[str, str]
FROM_THE_START = 0


async def until(condition: Callable[[], bool]) -> None:
    """Not for ever: a test that waits in vain fails."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture(name="until")
def until_fixture() -> Callable[[Callable[[], bool]], Any]:
    return until


@dataclass
class Replica:
    """An HTTP server that answers with what `answer` is now; empty: never."""

    answer: bytes
    num_requests: int = 0
    last_body: bytes = b""
    port: int = 0
    serving: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            _, _, length = head.partition(b"content-length: ")
            self.last_body = await reader.readexactly(int(length.split(b"\r\n")[0] or 0))
            self.num_requests += 1
            writer.write(self.answer)
            await (reader.read() if not self.answer else writer.drain())
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        self.serving.discard(task)


@asynccontextmanager
async def serve_replica(answer: bytes) -> AsyncIterator[Replica]:
    one = Replica(answer)
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.port = server.sockets[0].getsockname()[1]
    try:
        yield one
    finally:
        server.close()
        await asyncio.gather(*one.serving)


@pytest.fixture
def replica() -> Callable[[bytes], AbstractAsyncContextManager[Replica]]:
    """Starts one."""
    return serve_replica


@dataclass
class _Event:
    version: int
    plural: str
    type: str
    obj: Manifest


@dataclass
class LocalApiServer:
    """Objects by plural, namespace and name. Every write gets the next resourceVersion."""

    port: int = 0
    version: int = 1
    objects: dict[str, dict[Place, Manifest]] = field(default_factory=lambda: defaultdict(dict))
    events: list[_Event] = field(default_factory=list)
    refuse: int = 0
    """A status that every list and watch is answered with; 0: none."""
    frozen: bool = False
    """Watches stay open and tell nothing, not even their end."""
    mute: bool = False
    """Watches stay open and are not even answered."""
    expired: bool = False
    """A watch's first line is 410 Gone."""
    garbage: bytes = b""
    """What stands where a watch's events should."""
    page_size: int = 500
    num_lists: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    num_watches: int = 0
    forbid_status: bool = False
    applied: list[tuple[str, Manifest]] = field(default_factory=list)
    """Path and body of each server-side apply."""
    _server: asyncio.Server | None = None
    _connections: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As a crash: the listener and all connections are gone at once."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.cut()

    async def cut(self) -> None:
        """Ends every connection."""
        connections = dict(self._connections)
        for task, writer in connections.items():
            writer.transport.abort()
            task.cancel()
        if connections:
            await asyncio.wait(connections)

    async def put(self, plural: str, obj: Manifest) -> None:
        metadata = obj["metadata"]
        place = (metadata["namespace"], metadata["name"])
        event_type = "MODIFIED" if place in self.objects[plural] else "ADDED"
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        self.objects[plural][place] = obj
        await self._tell(plural, event_type, obj)

    async def delete(self, plural: str, namespace: str, name: str) -> None:
        obj = self.objects[plural].pop((namespace, name))
        self.version += 1
        await self._tell(plural, "DELETED", {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}})

    async def _tell(self, plural: str, event_type: str, obj: Manifest) -> None:
        self.events.append(_Event(self.version, plural, event_type, json.loads(json.dumps(obj))))
        async with self._news:
            self._news.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await self._answer(reader, writer)
        finally:
            del self._connections[task]
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split("\r\n")[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head.split("\r\n")[1:])}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        url = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if method == "POST":
            await self._create(writer, url.path, json.loads(body))
        elif method == "PATCH":
            await self._apply(writer, url.path, json.loads(body))
        elif self.refuse:
            await _reply(writer, {"kind": "Status", "code": self.refuse, "reason": "Refused", "message": "not now"}, self.refuse)
        elif query.get("watch") == "true":
            await self._watch(writer, url.path, query)
        else:
            await self._list(writer, url.path, query)

    async def _list(self, writer: asyncio.StreamWriter, path: str, query: dict[str, str]) -> None:
        plural = path.rsplit("/", 1)[1]
        start = int(query.get("continue", FROM_THE_START))
        if start == FROM_THE_START:
            self.num_lists[plural] += 1
        found = [obj for obj in self.objects[plural].values() if _is_meant(obj, path, query)]
        more = str(start + self.page_size) if start + self.page_size < len(found) else ""
        items = found[start : start + self.page_size]
        await _reply(writer, {"kind": "List", "metadata": {"resourceVersion": str(self.version), "continue": more}, "items": items})

    async def _watch(self, writer: asyncio.StreamWriter, path: str, query: dict[str, str]) -> None:
        self.num_watches += 1
        if self.mute:
            await asyncio.Event().wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        if self.expired:
            _chunk(writer, json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}).encode() + b"\n")
        elif self.garbage:
            _chunk(writer, self.garbage)
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self.frozen else float(query["timeoutSeconds"])):
                    await self._stream(writer, path, query)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _stream(self, writer: asyncio.StreamWriter, path: str, query: dict[str, str]) -> None:
        plural, seen = path.rsplit("/", 1)[1], int(query["resourceVersion"])
        while True:
            for event in list(self.events):
                if event.version > seen and event.plural == plural and _is_meant(event.obj, path, query) and not self.frozen:
                    line = json.dumps({"type": event.type, "object": event.obj}).encode() + b"\n"
                    _chunk(writer, line[:7])
                    await writer.drain()
                    _chunk(writer, line[7:])
                    seen = event.version
            await writer.drain()
            async with self._news:
                await self._news.wait()

    async def _create(self, writer: asyncio.StreamWriter, path: str, body: Manifest) -> None:
        plural, metadata = path.rsplit("/", 1)[1], body["metadata"]
        if (metadata["namespace"], metadata["name"]) in self.objects[plural]:
            await _reply(writer, {"kind": "Status", "code": 409, "reason": "AlreadyExists", "message": "it is there"}, 409)
            return
        await self.put(plural, body)
        await _reply(writer, body, 201)

    async def _apply(self, writer: asyncio.StreamWriter, path: str, body: Manifest) -> None:
        self.applied.append((path, body))
        if self.forbid_status:
            await _reply(writer, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}, 403)
            return
        plural, name = path.removesuffix("/status").split("/")[-2:]
        obj = self.objects[plural].get((body["metadata"]["namespace"], name))
        if obj is None or obj["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            await _reply(writer, {"kind": "Status", "code": 409, "reason": "Conflict", "message": "not what is there"}, 409)
            return
        conditions = {each["type"]: each for each in (obj.get("status") or {}).get("conditions") or ()}
        conditions.update({each["type"]: each for each in body["status"]["conditions"]})
        await self.put(plural, {**obj, "metadata": {**obj["metadata"]}, "status": {**(obj.get("status") or {}), "conditions": list(conditions.values())}})
        await _reply(writer, self.objects[plural][body["metadata"]["namespace"], name])


def _is_meant(obj: Manifest, path: str, query: dict[str, str]) -> bool:
    _, _, rest = path.partition("/namespaces/")
    label = query.get("labelSelector")
    return (not rest or rest.split("/")[0] == obj["metadata"]["namespace"]) and (label is None or label in (obj["metadata"].get("labels") or {}))


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def _reply(writer: asyncio.StreamWriter, answer: Manifest, status: int = 200) -> None:
    body = json.dumps(answer).encode()
    writer.write(f"HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()


@pytest.fixture
async def api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalApiServer]:
    """Running, and named by $KUBECONFIG."""
    server = LocalApiServer()
    await server.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "local",
        "clusters": [{"name": "local", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
        "users": [{"name": "local", "user": {}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    yield server
    await server.stop()
