"""Streams over plain sockets and counts their events, cheaply, so that the server is measured and not this.

{"port": p, "path": "/v1/…", "body": {…}, "num_streams": n, "warm_up": s, "seconds": s, "pids": {name: pid}} → {"began": t, "seconds": s, "events": n,
"total": n, "cpu": {name: s}}: of the `seconds` that begin `warm_up` after all streams have their first event, and `total` events until the last stream's end.
`cpu` has what each process took meanwhile, all its threads, and this one as `driver`; `began` is on the machine's monotonic clock.
"""

import json
import os
import select
import socket
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Any

from line_protocol import serve

OK = b"HTTP/1.1 200 "
EVENT = b"data: "
END = b"[DONE]"
KEPT = max(len(EVENT), len(END)) - 1
"""Bytes of what was read in which one of them may have begun."""
RECEIVE_BYTES = 1 << 16
TIMEOUT_SECONDS = 120.0
"""Without any event."""
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


class Streams:
    """Streams of one request each, read as their bytes come."""

    def __init__(self, port: int, request: bytes, num_streams: int) -> None:
        self.num_events = 0
        self._waiting = set[int]()
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._ends: dict[int, bytes] = {}  # of what was read
        for _ in range(num_streams):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(request)
            self._sockets[connection.fileno()] = connection
            self._waiting.add(connection.fileno())
            self._poll.register(connection.fileno(), select.EPOLLIN)

    @property
    def have_begun(self) -> bool:
        return not self._waiting

    @property
    def are_open(self) -> int:
        """How many."""
        return len(self._sockets)

    def close(self) -> None:
        """Also the streams that are still open."""
        self._poll.close()
        for connection in self._sockets.values():
            connection.close()

    def read(self) -> None:
        """What is there, waited for. Raises RuntimeError with the server's words where there are no events."""
        ready = self._poll.poll(TIMEOUT_SECONDS)
        if not ready:
            raise RuntimeError(f"no event for {TIMEOUT_SECONDS:.0f} s on {len(self._sockets)} streams")
        for descriptor, _ in ready:
            self._read_one(descriptor)

    def _read_one(self, descriptor: int) -> None:
        data = self._sockets[descriptor].recv(RECEIVE_BYTES)
        end = self._ends.get(descriptor)
        if not data or (end is None and not data.startswith(OK)):
            raise RuntimeError(f"a stream ended early: {data.decode(errors='replace')[:2000]}")
        text = (end or b"") + data
        num_events = text.count(EVENT)
        self.num_events += num_events
        self._ends[descriptor] = text[-KEPT:]
        if num_events:
            self._waiting.discard(descriptor)
        if END in text:
            self._poll.unregister(descriptor)
            self._sockets.pop(descriptor).close()


def count(streams: Streams, warm_up: float, seconds: float, pids: Mapping[str, int]) -> dict[str, Any]:
    while not streams.have_begun:
        streams.read()
    num_streams = streams.are_open
    _read_for(streams, warm_up)
    before, num_before = {name: cpu_seconds(pid) for name, pid in pids.items()}, streams.num_events
    began = perf_counter()
    elapsed = _read_for(streams, seconds)
    cpu, num_events = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}, streams.num_events - num_before
    if streams.are_open < num_streams:
        raise RuntimeError("a stream ended before the measurement did: give them more tokens")
    while streams.are_open:
        streams.read()
    return {"began": began, "seconds": elapsed, "events": num_events, "total": streams.num_events, "cpu": cpu}


def _read_for(streams: Streams, seconds: float) -> float:
    """Returns how long it really was."""
    start = perf_counter()
    while (elapsed := perf_counter() - start) < seconds and streams.are_open:
        streams.read()
    return elapsed


def make_handler() -> Any:
    def handle(request: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps(request["body"]).encode()
        head = f"POST {request['path']} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with closing(Streams(request["port"], head.encode() + body, request["num_streams"])) as streams:
            return count(streams, request["warm_up"], request["seconds"], {**request["pids"], "driver": os.getpid()})

    return handle


if __name__ == "__main__":
    serve(make_handler)
