"""The input thread: frames from the api → the main loop's queue. Decodes and builds requests while the device computes."""

import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import zmq

from stoker_engine.core.request import Request
from stoker_engine.protocol import (
    EngineCoreRequest,
    EngineCoreRequestType,
    UtilityRequest,
    decode_request,
    decode_request_ids,
)
from stoker_engine.serialization import MessageDecoder

logger = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class AddRequest:
    client: bytes
    request: Request


@dataclass(slots=True, frozen=True)
class RejectRequest:
    """A request that could not be built: it fails alone."""

    client: bytes
    request_id: str
    client_index: int
    message: str


@dataclass(slots=True, frozen=True)
class AbortRequests:
    client: bytes
    request_ids: list[str]


@dataclass(slots=True, frozen=True)
class CallUtility:
    client: bytes
    call: UtilityRequest


@dataclass(slots=True, frozen=True)
class ClientConnected:
    """A new api: what the old one asked for is nobody's any more."""

    client_incarnation: bytes


@dataclass(slots=True, frozen=True)
class ClientLost:
    pass


@dataclass(slots=True, frozen=True)
class Wakeup:
    """Look at the shutdown state."""


ClientInput = AddRequest | RejectRequest | AbortRequests | CallUtility
"""What a client sent, with the client's incarnation: the loop drops what comes from another than the present one."""

EngineInput = ClientInput | ClientConnected | ClientLost | Wakeup


class InputThread:
    """Owns the input DEALER, which lives as long as one client: a new client gets a new socket, so nothing of the old one can arrive."""

    def __init__(
        self,
        address: str,
        identity: bytes,
        preprocess: Callable[[EngineCoreRequest], Request],
        put: Callable[[EngineInput], None],
        abort_eagerly: Callable[[list[str]], None],
    ) -> None:
        self._address = address
        self._identity = identity
        self._preprocess = preprocess
        self._put = put
        self._abort_eagerly = abort_eagerly
        self._wanted: tuple[int, bytes | None] = (0, None)
        self._closing = False
        self._decode_call = MessageDecoder(UtilityRequest).decode
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="input", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def set_client(self, client_incarnation: bytes | None) -> None:
        """From another thread: serve this client, or none, over a new link, also where it is the one of before."""
        self._wanted = (self._wanted[0] + 1, client_incarnation)
        self._wake()

    def close(self) -> None:
        self._closing = True
        self._wake()
        self._thread.join(timeout=1.0)
        self._wake_sender.close()
        self._wake_receiver.close()

    def _wake(self) -> None:
        try:
            self._wake_sender.send(b"\0")
        except OSError:
            return  # closed: there is no thread to wake

    def _run(self) -> None:
        with zmq.Context() as context:
            while not self._closing:
                wanted = self._wanted
                dealer = self._open(context, wanted[1]) if wanted[1] is not None else None
                self._serve(dealer, wanted)
                if dealer is not None:
                    dealer.close(0)

    def _serve(self, dealer: zmq.Socket[bytes] | None, wanted: tuple[int, bytes | None]) -> None:
        """Takes messages until another link is wanted."""
        poller = zmq.Poller()
        poller.register(self._wake_receiver, zmq.POLLIN)
        if dealer is not None:
            poller.register(dealer, zmq.POLLIN)
        while self._wanted == wanted and not self._closing:
            events: dict[Any, int] = dict(poller.poll())
            if self._wake_receiver.fileno() in events:
                self._wake_receiver.recv(4096)
            if dealer is not None and dealer in events:
                self._on_frames(dealer.recv_multipart(), wanted[1])

    def _open(self, context: zmq.Context[Any], client: bytes) -> zmq.Socket[bytes]:
        dealer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        # No identity of its own: a ROUTER ignores a second connection with a name it knows, and the old one may not be gone yet.
        dealer.setsockopt(zmq.RCVHWM, 0)
        dealer.setsockopt(zmq.RECONNECT_IVL, 20)
        dealer.connect(self._address)
        dealer.send_multipart([client, self._identity])  # tells the api at which address this engine is
        return dealer

    def _on_frames(self, frames: list[bytes], client: bytes | None) -> None:
        """One message. Whatever is in it, the thread goes on."""
        if len(frames) != 3 or client is None or frames[0] != client:
            logger.warning("dropped an input message of %d frames: not from the present client", len(frames))
            return
        try:
            request_type = EngineCoreRequestType(frames[1])
            self._on_message(client, request_type, frames[2])
        except (ValueError, msgspec.MsgspecError) as error:
            logger.warning("dropped an undecodable input message: %s", error)

    def _on_message(self, client: bytes, request_type: EngineCoreRequestType, body: bytes) -> None:
        match request_type:
            case EngineCoreRequestType.ADD:
                self._put(self._build(client, decode_request(body)))
            case EngineCoreRequestType.ABORT:
                # In both queues: the eager one ends the request in the running step, the ordered one catches an ADD still queued before it.
                request_ids = decode_request_ids(body)
                self._abort_eagerly(request_ids)
                self._put(AbortRequests(client, request_ids))
            case EngineCoreRequestType.UTILITY:
                self._put(CallUtility(client, self._decode_call([body])))

    def _build(self, client: bytes, request: EngineCoreRequest) -> ClientInput:
        try:
            return AddRequest(client, self._preprocess(request))
        except (ValueError, TypeError, OverflowError) as error:
            logger.warning("request %s could not be built: %s", request.request_id, error)
            return RejectRequest(client, request.request_id, request.client_index, str(error))
