"""The output thread: EngineCoreOutputs → the api. It never blocks in a send, and gives up an api that does not take what it is sent."""

import logging
import queue
import threading
import time
from collections.abc import Callable

import zmq

from stoker_engine.core.output_socket import OutputSocket
from stoker_engine.protocol import ENGINE_CORE_DEAD, EngineCoreOutputs

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 4.0
"""How long a closing engine waits for its last outputs to leave."""
CONNECT_SECONDS = 4.0
"""How long a message waits for a connection, which takes milliseconds with an api that lives."""


class OutputThread:
    """Owns the output PUSH, one per client. `send`, `set_client` and `close` may be called from any thread.

    `give_up(client, reason)` is called in this thread when a client lets too much pile up, or cannot be reached: outputs are lost from then on.
    """

    def __init__(self, address: str, identity: bytes, give_up: Callable[[bytes, str], None]) -> None:
        self._address = address
        self._identity = identity
        self._give_up = give_up
        self._queue: queue.SimpleQueue[tuple[bytes | None, EngineCoreOutputs | bytes | None] | None] = queue.SimpleQueue()
        self._client: bytes | None = None
        self._socket: OutputSocket | None = None
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def set_client(self, client_incarnation: bytes | None) -> None:
        """The client there is now; what is queued or on its way to another one is dropped."""
        self._client = client_incarnation
        self._queue.put((client_incarnation, None))

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
            while (item := self._queue.get()) is not None:
                client, outputs = item
                push = self._socket_for(self._client, context)
                if push is not None and client == push.client and outputs is not None:
                    self._send(push, outputs)
            if self._socket is not None:
                self._socket.close(FLUSH_SECONDS)

    def _socket_for(self, client: bytes | None, context: zmq.Context[zmq.Socket[bytes]]) -> OutputSocket | None:
        """Opened as soon as there is a client, so that the first outputs don't wait."""
        if self._socket is not None and self._socket.client != client:
            self._abandon(self._socket)
        if self._socket is None and client is not None:
            self._socket = OutputSocket(context, self._address, client, self._identity)
        return self._socket

    def _send(self, push: OutputSocket, outputs: EngineCoreOutputs | bytes) -> None:
        deadline = time.monotonic() + CONNECT_SECONDS
        while not push.send(outputs):
            if push.client != self._client:
                return
            if time.monotonic() > deadline:
                self._lose(push, "its output socket cannot be reached")
                return
            push.wait_for_connection()
        excess = push.excess
        if excess is not None:
            self._lose(push, excess)

    def _lose(self, push: OutputSocket, reason: str) -> None:
        logger.warning("giving up the api: %s", reason)
        self._abandon(push)
        self._give_up(push.client, reason)

    def _abandon(self, push: OutputSocket) -> None:
        push.abandon()
        self._socket = None
