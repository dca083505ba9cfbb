"""/livez, /readyz and /metrics of the operator, from a thread of their own: they answer also while the event loop hangs, and say so."""

import http.server
import logging
import threading
import time

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from stoker_operator.errors import LocalError
from stoker_operator.progress import Phase, Progress

logger = logging.getLogger(__name__)

LOOP_SECONDS = 30.0
"""The event loop ticks each second; it hangs when it has not for this long."""

QUEUE_SECONDS = 120.0
"""The workers hang when a key is due for this long while none of them finishes any."""

QUIET_LISTS = 4
"""The API server is out of reach when this many lists in a row came to nothing, and no watch brought anything."""

READY_PHASES = (Phase.STANDBY, Phase.LISTING, Phase.LEADING)


def why_not_alive(progress: Progress, resync_seconds: float) -> str | None:
    """What a restart may mend; None while all is well."""
    now = time.monotonic()
    if now - progress.loop_tick > LOOP_SECONDS:
        return f"the event loop has not run for {now - progress.loop_tick:.0f} s"
    if progress.phase is not Phase.LEADING:
        return None
    if progress.queue_age > QUEUE_SECONDS and now - progress.last_done > QUEUE_SECONDS:
        return f"a key has been due for {progress.queue_age:.0f} s, and no worker finished one for {now - progress.last_done:.0f} s"
    quiet = max(QUIET_LISTS * resync_seconds, QUEUE_SECONDS)
    if now - progress.last_seen > quiet:
        return f"the API server has told nothing for {now - progress.last_seen:.0f} s"
    return None


class HealthServer:
    """Raises LocalError if the port is taken."""

    def __init__(self, host: str, port: int, progress: Progress, resync_seconds: float) -> None:
        class Handler(_Handler):
            answers = _Answers(progress, resync_seconds)

        try:
            self._server = http.server.ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise LocalError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --health-port") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> "HealthServer":
        self._thread.start()
        logger.info("Answering /livez, /readyz and /metrics on port %d", self.port)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Answers:
    def __init__(self, progress: Progress, resync_seconds: float) -> None:
        self._progress = progress
        self._resync_seconds = resync_seconds

    def find(self, path: str) -> tuple[int, str, bytes] | None:
        """Status, content type and body."""
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest()
        if path == "/livez":
            problem = why_not_alive(self._progress, self._resync_seconds)
            return 503 if problem else 200, "text/plain", (problem or "ok").encode()
        if path == "/readyz":
            phase = self._progress.phase
            return 200 if phase in READY_PHASES else 503, "text/plain", phase.value.encode()
        return None


class _Handler(http.server.BaseHTTPRequestHandler):
    answers: _Answers
    timeout = 10
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status, content_type, body = self.answers.find(self.path.partition("?")[0]) or (404, "text/plain", b"there are /livez, /readyz and /metrics")
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        logger.debug(format, *args)
