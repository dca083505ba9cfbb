"""The input thread: frames from the api → the main loop's queue. Decodes and builds requests while the device computes."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import zmq

from stoker_engine.core.input_decoder import AbortRequests, ClientInput, InputDecoder, RejectRequest, RequestIntake
from stoker_engine.core.waker import Waker
from stoker_engine.drop_log import DropLog

logger = logging.getLogger(__name__)

MESSAGES_PER_POLL = 256
"""Taken before the thread looks whether it is to serve another client."""


@dataclass(slots=True, frozen=True)
class ClientConnected:
    """A new api: what the old one asked for is nobody's any more."""

    client_incarnation: bytes


@dataclass(slots=True, frozen=True)
class ClientLost:
    pass


@dataclass(slots=True, frozen=True)
class Wakeup:
    """Look at the shutdown state, and at what waits for a grammar."""


@dataclass(slots=True, frozen=True)
class ExecutorFailed:
    """A worker has ended, in these words: the engine cannot go on."""

    message: str


EngineInput = ClientInput | ClientConnected | ClientLost | ExecutorFailed | Wakeup


class InputThread:
    """Owns the input DEALER, which lives as long as one client: a new client gets a new socket, so nothing of the old one can arrive."""

    def __init__(self, address: str, identity: bytes, core: RequestIntake, put: Callable[[EngineInput], None]) -> None:
        self._address = address
        self._identity = identity
        self._decoder = InputDecoder(core)
        self._put = put
        self._abort_eagerly = core.abort_eagerly
        self._drops = DropLog(logger)
        self._wanted: tuple[int, bytes | None] = (0, None)
        self._closing = False
        self._waker = Waker()
        self._thread = threading.Thread(target=self._run, name="input", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def set_client(self, client_incarnation: bytes | None) -> None:
        """From another thread: serve this client, or none, over a new link, also where it is the one of before."""
        self._wanted = (self._wanted[0] + 1, client_incarnation)
        self._waker.wake()

    def close(self) -> None:
        self._closing = True
        self._waker.wake()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        with zmq.Context() as context:
            while not self._closing:
                wanted = self._wanted
                dealer = self._open(context, wanted[0], wanted[1]) if wanted[1] is not None else None
                self._serve(dealer, wanted)
                if dealer is not None:
                    dealer.close(0)
        self._waker.close()  # here, not in `close`: a thread that is late still polls it

    def _serve(self, dealer: zmq.Socket[bytes] | None, wanted: tuple[int, bytes | None]) -> None:
        """Takes messages until another link is wanted."""
        poller = zmq.Poller()
        poller.register(self._waker.fileno, zmq.POLLIN)
        if dealer is not None:
            poller.register(dealer, zmq.POLLIN)
        while self._wanted == wanted and not self._closing:
            events: dict[Any, int] = dict(poller.poll())
            if self._waker.fileno in events:
                self._waker.drain()
            if dealer is not None and dealer in events:
                self._receive(dealer, wanted[1])

    def _receive(self, dealer: zmq.Socket[bytes], client: bytes | None) -> None:
        for _ in range(MESSAGES_PER_POLL):
            try:
                frames = dealer.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._on_frames(frames, client)

    def _open(self, context: zmq.Context[Any], number: int, client: bytes) -> zmq.Socket[bytes]:
        dealer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        # No identity of its own: a ROUTER ignores a second connection with a name it knows, and the old one may not be gone yet.
        dealer.setsockopt(zmq.RCVHWM, 0)
        dealer.setsockopt(zmq.RECONNECT_IVL, 20)
        dealer.connect(self._address)
        dealer.send_multipart([client, self._identity, number.to_bytes(8)])  # tells the api at which address this engine is
        return dealer

    def _on_frames(self, frames: list[bytes], client: bytes | None) -> None:
        """One message. Whatever is in it, the thread goes on."""
        if frames[0] != client:
            self._drops.dropped(f"an input message of {len(frames)} frames", "not from the present client")
            return
        try:
            message = self._decoder.decode(frames)
        except ValueError as error:
            self._drops.dropped("an undecodable input message", error)
            return
        if isinstance(message, RejectRequest):
            self._drops.dropped(f"request {message.request_id}", message.message)
        elif isinstance(message, AbortRequests):
            # In both queues: the eager one ends the request in the running step, the ordered one catches an ADD still queued before it.
            self._abort_eagerly(message.request_ids)
        self._put(message)
