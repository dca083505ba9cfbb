"""The engine's own probes and metrics, from threads of their own: they answer while a step holds the main thread.

/livez: the loop turns, or the model still loads. /readyz: READY, with a client, not draining, not asleep. /startupz: how far the start has come.
/metrics: `stoker_engine_…` and `process_…`; what concerns requests is the api's to tell.
"""

import logging
import socket
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

import msgspec

from stoker_engine.config import EngineConfig, seconds
from stoker_engine.core.engine_link import EngineLink
from stoker_engine.core.engine_metrics import CONTENT_TYPE, EngineMetrics
from stoker_engine.core.scheduler import Scheduler
from stoker_engine.errors import ConfigError
from stoker_engine.protocol import EnginePhase
from stoker_engine.startup_report import STARTED, report_startup

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 64
"""One more closes the oldest: connections that say nothing cannot keep a probe out."""
CONNECTION_SECONDS = 5.0
"""For a whole request and its answer."""


class Answer(msgspec.Struct, omit_defaults=True):
    """`reason` says what is missing."""

    status: str
    reason: str = ""


class EngineHealth:
    """What the probes say, from any thread."""

    def __init__(self, config: EngineConfig, link: EngineLink) -> None:
        self._link = link
        self._hang_seconds = seconds(config.lifecycle.engine_hang_timeout)
        self._metrics = EngineMetrics(link)

    def loop_begins(self, scheduler: Scheduler) -> None:
        self._metrics.scheduler = scheduler

    def answer(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Status, content type and body."""
        match path.partition("?")[0]:
            case "/livez":
                return self._verdict(self._not_live_reason())
            case "/readyz" | "/health":
                return self._verdict(self._not_ready_reason())
            case "/startupz":
                return self._startup()
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE, self._metrics.render()
            case _:
                return _json(HTTPStatus.NOT_FOUND, Answer("not found", "there are /livez, /readyz, /health, /startupz and /metrics"))

    def _verdict(self, reason: str | None) -> tuple[HTTPStatus, str, bytes]:
        return _json(HTTPStatus.OK, Answer("ok")) if reason is None else _json(HTTPStatus.SERVICE_UNAVAILABLE, Answer("unavailable", reason))

    def _not_live_reason(self) -> str | None:
        beat = self._link.pulse.heartbeat()
        for what, age in (("a step has been running", beat.step_age), ("the loop has not turned", beat.loop_age)):
            if age > self._hang_seconds:
                return f"{what} for {age:.0f} s"
        return None

    def _not_ready_reason(self) -> str | None:
        phase = self._link.handshake.phase
        if phase is not EnginePhase.READY:
            return f"the engine is {phase.value.replace('_', ' ')}"
        if not self._link.handshake.has_client:
            return "no api is connected"
        return self._not_live_reason()

    def _startup(self) -> tuple[HTTPStatus, str, bytes]:
        report = self._link.handshake.phase_report
        status = HTTPStatus.OK if report.phase in STARTED else HTTPStatus.SERVICE_UNAVAILABLE
        return _json(status, report_startup(report.phase.value, report))


def _json(status: HTTPStatus, body: msgspec.Struct) -> tuple[HTTPStatus, str, bytes]:
    return status, "application/json", msgspec.json.encode(body)


class HealthServer:
    """Listens from construction on. Raises ConfigError, naming the address, where it cannot."""

    def __init__(self, config: EngineConfig, link: EngineLink) -> None:
        self._health = EngineHealth(config, link)
        address = (config.health_host, config.health_port or 0)
        try:
            server = _server_type(address[0])(address, _make_handler(self._health))
        except OSError as error:
            raise ConfigError(f"--health-port: cannot listen on {address[0]}:{address[1]}: {error.strerror or error}") from error
        logger.info("probes and metrics on http://%s:%d", *server.server_address[:2])
        threading.Thread(target=server.serve_forever, name="health", daemon=True).start()

    def loop_begins(self, scheduler: Scheduler) -> None:
        """From now on there are numbers of requests and blocks."""
        self._health.loop_begins(scheduler)


class _Server(ThreadingHTTPServer):
    """One request per connection, and a bounded number of connections, each for a bounded time."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        self._opened: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(*args)

    def server_bind(self) -> None:
        """Without HTTPServer's look for its own name, which may wait for a name server."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._opened[request] = time.monotonic()
            if len(self._opened) > MAX_CONNECTIONS:
                oldest = next(iter(self._opened))
                del self._opened[oldest]  # its thread may take a moment: the next connection is to close the next one
                _hang_up(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._opened.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Every half second."""
        with self._lock:
            limit = time.monotonic() - CONNECTION_SECONDS
            for request, opened in self._opened.items():
                if opened < limit:
                    _hang_up(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the middle of its request is nobody's fault. Anything else is ours, and no reason to end the engine."""
        if not isinstance(sys.exception(), OSError):
            logger.exception("a probe could not be answered")


class _ServerV6(_Server):
    address_family = socket.AF_INET6


def _server_type(host: str) -> type[_Server]:
    return _ServerV6 if ":" in host else _Server


def _hang_up(connection: socket.socket) -> None:
    """Ends what the connection's thread waits for."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is closed already


def _make_handler(health: EngineHealth) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "stoker-engine"
        sys_version = ""
        timeout = CONNECTION_SECONDS

        def do_GET(self) -> None:
            status, content_type, body = health.answer(self.path)
            self.close_connection = True
            self.send_response(status)
            for name, value in (("Content-Type", content_type), ("Content-Length", str(len(body))), ("Connection", "close")):
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: Any) -> None:
            """Probes come every second: they are no news."""

    return Handler
