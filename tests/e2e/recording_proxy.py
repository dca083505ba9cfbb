"""A plain HTTP proxy before the API server: what is asked of it, reads and watches too, and how it answers; and answers that it never gave."""

import base64
import http.client
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

RESOURCE = re.compile(
    r"/apis?/(?:(?P<group>[^/]+\.[^/]+|apps|policy)/)?v[^/]+/(?:namespaces/(?P<namespace>[^/]+)/)?(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>.+))?$"
)
WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
CHUNK = 65536


@dataclass(frozen=True, slots=True)
class Request:
    """As RBAC sees it; `resource` as a rule has it. `namespace` is empty for the whole cluster."""

    verb: str
    resource: str
    namespace: str
    name: str
    status: int


LOST = 0
"""Instead of a status: the API server has done it, and the connection ends without a word."""


class RecordingProxy:
    def __init__(self, server: tuple[str, int], certificate: str) -> None:
        self.requests: list[Request] = []
        self.faults: dict[tuple[str, str], list[int]] = {}
        """For a verb and a resource: what its next requests are answered with, one after the other; a failing status never reaches the API server."""
        self.before: dict[tuple[str, str], Callable[[], None]] = {}
        """For a verb and a resource: what happens once between the client's sending of the next such request and its arrival."""
        self._server = server
        self._context = ssl.create_default_context(cadata=certificate)
        self._listener = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._listener.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.server_address[1])

    def close(self) -> None:
        self._listener.shutdown()
        self._listener.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                """The requests are kept, not printed."""

            def do_GET(self) -> None:
                proxy._forward(self)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

        return Handler

    def _forward(self, handler: BaseHTTPRequestHandler) -> None:
        """The connection's end is the answer's: HTTP/1.0 to the client."""
        asked = _seen(handler.command, handler.path, 0)
        faults = self.faults.get((asked[0].verb, asked[0].resource)) if asked else None
        fault = faults.pop(0) if faults else None
        if fault:
            self.requests.append(replace(asked[0], status=fault))
            _answer_fault(handler, asked[0].verb, fault)
            return
        if asked and (happens := self.before.pop((asked[0].verb, asked[0].resource), None)):
            happens()
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in handler.headers.items() if name.lower() not in ("host", "connection", "accept-encoding")}
        upstream = http.client.HTTPSConnection(*self._server, context=self._context)
        try:
            upstream.request(handler.command, handler.path, body, headers)
            answer = upstream.getresponse()
            self.requests += _seen(handler.command, handler.path, answer.status)
            if fault == LOST:
                return
            handler.send_response(answer.status)
            handler.send_header("Content-Type", answer.headers.get("Content-Type", ""))
            handler.end_headers()
            while data := answer.read1(CHUNK):
                handler.wfile.write(data)
        except (ConnectionError, ssl.SSLError):
            return
        finally:
            upstream.close()


def _answer_fault(handler: BaseHTTPRequestHandler, verb: str, status: int) -> None:
    """As the API server words its failures; those of a watch are events."""
    words: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": REASONS[status],
        "message": "made up by a test",
        "code": status,
    }
    handler.send_response(200 if verb == "watch" else status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Retry-After", "1")
    handler.end_headers()
    handler.wfile.write(json.dumps({"type": "ERROR", "object": words} if verb == "watch" else words).encode() + b"\n")


def _seen(method: str, path: str, status: int) -> list[Request]:
    """An apply that makes an object takes two verbs."""
    url = urlsplit(path)
    found = RESOURCE.fullmatch(url.path)
    if found is None or found["plural"] in ("namespaces", "version"):
        return []
    reads = "get" if found["name"] else "watch" if "watch" in parse_qs(url.query) else "list"
    verbs = [WRITES.get(method, reads), *(["create"] if (method, status) == ("PATCH", 201) else [])]
    resource = "/".join(part for part in (found["plural"], found["sub"]) if part)
    return [Request(verb, resource, found["namespace"] or "", found["name"] or "", status) for verb in verbs]


@contextmanager
def recording_proxy(kubeconfig: Path) -> Iterator[RecordingProxy]:
    """The kubeconfig leads through it from now on."""
    config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    server = urlsplit(cluster["server"])
    proxy = RecordingProxy((server.hostname or "", server.port or 443), _certificate(cluster))
    config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{proxy.port}"}
    kubeconfig.write_text(yaml.safe_dump(config))
    try:
        yield proxy
    finally:
        proxy.close()


def _certificate(cluster: dict[str, str]) -> str:
    return base64.b64decode(cluster["certificate-authority-data"]).decode()
