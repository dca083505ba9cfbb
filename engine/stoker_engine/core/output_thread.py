"""The output thread: EngineCoreOutputs → the api. It never blocks in a send: what a gone client will not take is dropped."""

import logging
import queue
import threading
import time
from typing import Any

import zmq

from stoker_engine.protocol import ENGINE_CORE_DEAD, EngineCoreOutputs, encode

logger = logging.getLogger(__name__)

SEND_POLL_MS = 100
FLUSH_SECONDS = 4.0
"""How long a closing engine waits for its last outputs to leave."""


class OutputThread:
    """Owns the output PUSH, one per client. `send`, `set_client` and `close` may be called from any thread."""

    def __init__(self, address: str, identity: bytes) -> None:
        self._address = address
        self._identity = identity
        self._queue: queue.SimpleQueue[tuple[bytes, EngineCoreOutputs | bytes] | None] = queue.SimpleQueue()
        self._client: bytes | None = None
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def set_client(self, client_incarnation: bytes | None) -> None:
        """The client there is now; what is queued for another one is dropped."""
        self._client = client_incarnation

    def send(self, client_incarnation: bytes, outputs: EngineCoreOutputs) -> None:
        self._queue.put((client_incarnation, outputs))

    def send_dead(self, client_incarnation: bytes) -> None:
        """The last word of a failing engine."""
        self._queue.put((client_incarnation, ENGINE_CORE_DEAD))

    def close(self) -> None:
        """Waits, bounded, until everything queued has left."""
        self._queue.put(None)
        self._thread.join(timeout=FLUSH_SECONDS)

    def _run(self) -> None:
        with zmq.Context() as context:
            connected: bytes | None = None
            push: zmq.Socket[bytes] | None = None
            while (item := self._queue.get()) is not None:
                client, outputs = item
                if client != self._client:
                    continue
                if push is None or client != connected:
                    if push is not None:
                        push.close(0)
                    connected, push = client, self._open(context)
                self._send(push, client, outputs if isinstance(outputs, bytes) else encode(outputs))
            if push is not None:
                push.close(int(FLUSH_SECONDS * 1000))

    def _open(self, context: zmq.Context[Any]) -> zmq.Socket[bytes]:
        push: zmq.Socket[bytes] = context.socket(zmq.PUSH)
        push.setsockopt(zmq.SNDHWM, 0)
        push.setsockopt(zmq.IMMEDIATE, 1)
        push.setsockopt(zmq.RECONNECT_IVL, 20)
        push.connect(self._address)
        return push

    def _send(self, push: zmq.Socket[bytes], client: bytes, body: bytes) -> None:
        deadline = time.monotonic() + FLUSH_SECONDS
        while client == self._client and time.monotonic() < deadline:
            try:
                push.send_multipart([client, self._identity, body], zmq.NOBLOCK)
                return
            except zmq.Again:
                push.poll(SEND_POLL_MS, zmq.POLLOUT)
        logger.warning("dropped %d bytes of output: the api is gone", len(body))
