"""A Hugging Face hub's HTTP API on this machine: models from memory, scripted answers, and a record of every request."""

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

LARGE_BYTES = 2000
"""From here on a file is stored apart, and asked for by a redirect, as a hub does with weights."""
CHUNK_BYTES = 4096

Files = Mapping[str, bytes]


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]


@dataclass
class Answer:
    """In place of the real one, `times` times, to requests whose `METHOD path` fits `pattern`. `cut_after` sends that many bytes and hangs up."""

    pattern: str
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1
    cut_after: int | None = None


class HubStandIn:
    """`add_model` gives a revision its files; `answers` are used up in order; `requests` is what came. `gate` closed: no file's bytes are sent."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: list[Answer] = []
        self.gate = threading.Event()
        self.gate.set()
        self.token: str | None = None
        self.bytes_per_second: float | None = None
        self._commits: dict[tuple[str, str], str] = {}
        self._files: dict[tuple[str, str], Files] = {}
        self._lock = threading.Lock()
        hub = self

        class Handler(_Handler):
            def __init__(self, *args: Any) -> None:
                self.hub = hub
                super().__init__(*args)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.store_url = self.url.replace("127.0.0.1", "localhost")  # another host, which is not to be told the token
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()

    def add_model(self, repository: str, files: Files, revision: str = "main") -> str:
        """The commit."""
        commit = hashlib.sha1(json.dumps([repository, {name: _digest(data) for name, data in sorted(files.items())}]).encode()).hexdigest()
        self._commits |= {(repository, revision): commit, (repository, commit): commit}
        self._files[repository, commit] = files
        return commit

    def count(self, pattern: str) -> int:
        """Requests whose `METHOD path` fits."""
        return sum(fnmatchcase(f"{request.method} {request.path}", pattern) for request in self.requests)

    def downloads(self) -> dict[str, int]:
        """How often each file's bytes were asked for."""
        names = [request.path.rsplit("/", 1)[-1] for request in self.requests if request.method == "GET" and "/resolve/" in request.path]
        return {name: names.count(name) for name in names}

    def take_answer(self, request: Request) -> Answer | None:
        with self._lock:
            self.requests.append(request)
            for answer in self.answers:
                if answer.times and fnmatchcase(f"{request.method} {request.path}", answer.pattern):
                    answer.times -= 1
                    return answer
        return None

    def find(self, repository: str, revision: str) -> tuple[str | None, Files | None]:
        """The commit and its files. No commit: there is no such revision; no files: there is no such repository."""
        if not any(known == repository for known, _ in self._commits):
            return None, None
        commit = self._commits.get((repository, revision))
        return commit, self._files.get((repository, commit or ""), {})

    def blob(self, digest: str) -> bytes:
        return next(data for files in self._files.values() for data in files.values() if _digest(data) == digest)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _git_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubStandIn

    def do_GET(self) -> None:
        request = Request(self.command, unquote(self.path.partition("?")[0]), {name.lower(): value for name, value in self.headers.items()})
        answer = self.hub.take_answer(request)
        if answer is not None and answer.cut_after is None:
            self._send(answer.status, b"", answer.headers)
        elif self.hub.token is not None and not request.path.startswith("/stored/") and request.headers.get("authorization") != f"Bearer {self.hub.token}":
            self._send(401, b"", {"X-Error-Message": "Invalid username or password."})
        else:
            self._answer(request, None if answer is None else answer.cut_after)

    do_HEAD = do_GET

    def _answer(self, request: Request, cut_after: int | None) -> None:
        match request.path.strip("/").split("/"):
            case ["api", "models", organization, name]:
                self._with_files(f"{organization}/{name}", "main", self._send_info)
            case ["api", "models", organization, name, "revision", *revision]:
                self._with_files(f"{organization}/{name}", "/".join(revision), self._send_info)
            case ["api", "models", organization, name, "tree", *revision]:
                self._with_files(f"{organization}/{name}", "/".join(revision), self._send_tree)
            case [organization, name, "resolve", revision, *path]:
                self._with_files(f"{organization}/{name}", revision, lambda commit, files: self._send_file(commit, files, "/".join(path), cut_after))
            case ["stored", digest]:
                self._send_bytes(self.hub.blob(digest), {"ETag": f'"{digest}"'}, cut_after)
            case _:
                self._send(404, b"", {})

    def _with_files(self, repository: str, revision: str, send: Callable[[str, Files], None]) -> None:
        commit, files = self.hub.find(repository, revision)
        if files is None:
            self._send(404, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})
        elif commit is None:
            self._send(404, b'{"error": "Invalid rev id"}', {"X-Error-Code": "RevisionNotFound"})
        else:
            send(commit, files)

    def _send_info(self, commit: str, files: Files) -> None:
        siblings = [{"rfilename": name} for name in files]
        self._send(200, json.dumps({"id": "a/b", "sha": commit, "siblings": siblings, "tags": [], "private": False}).encode(), {})

    def _send_tree(self, _commit: str, files: Files) -> None:
        entries = []
        for name, data in files.items():
            entry: dict[str, object] = {"type": "file", "path": name, "size": len(data), "oid": _git_id(data)}
            if len(data) >= LARGE_BYTES:
                entry["lfs"] = {"oid": _digest(data), "size": len(data), "pointerSize": 134}
            entries.append(entry)
        self._send(200, json.dumps(entries).encode(), {})

    def _send_file(self, commit: str, files: Files, path: str, cut_after: int | None) -> None:
        if path not in files:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
            return
        data = files[path]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{_git_id(data)}"'}
        if len(data) < LARGE_BYTES:
            self._send_bytes(data, headers, cut_after)
            return
        linked = {"X-Linked-Etag": f'"{_digest(data)}"', "X-Linked-Size": str(len(data)), "Location": f"{self.hub.store_url}/stored/{_digest(data)}"}
        self._send(302, b"", headers | linked)

    def _send_bytes(self, data: bytes, headers: dict[str, str], cut_after: int | None) -> None:
        begin = 0
        if asked := self.headers.get("Range"):
            begin = int(asked.removeprefix("bytes=").partition("-")[0])
            headers = headers | {"Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}"}
        self.send_response(206 if begin else 200)
        for name, value in (headers | {"Content-Length": str(len(data) - begin), "Accept-Ranges": "bytes"}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        with contextlib.suppress(OSError):
            self._write(data[begin:] if cut_after is None else data[begin : begin + cut_after])
        self.close_connection = cut_after is not None

    def _write(self, data: bytes) -> None:
        for start in range(0, len(data), CHUNK_BYTES):
            chunk = data[start : start + CHUNK_BYTES]
            self.wfile.write(chunk)
            self.wfile.flush()
            self.hub.gate.wait()
            if self.hub.bytes_per_second is not None:
                time.sleep(len(chunk) / self.hub.bytes_per_second)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body)), "Content-Type": "application/json"}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@contextlib.contextmanager
def run_hub() -> Iterator[HubStandIn]:
    hub = HubStandIn()
    try:
        yield hub
    finally:
        hub.close()
