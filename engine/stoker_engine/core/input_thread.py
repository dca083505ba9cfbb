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
    decode_utility_request,
)

logger = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class AddRequest:
    request: Request


@dataclass(slots=True, frozen=True)
class RejectRequest:
    """A request that could not be built: it fails alone."""

    request_id: str
    client_index: int
    message: str


@dataclass(slots=True, frozen=True)
class AbortRequests:
    request_ids: list[str]


@dataclass(slots=True, frozen=True)
class CallUtility:
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


EngineInput = AddRequest | RejectRequest | AbortRequests | CallUtility | ClientConnected | ClientLost | Wakeup


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
        self._wanted_client: bytes | None = None
        self._closing = False
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="input", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def set_client(self, client_incarnation: bytes | None) -> None:
        """From the handshake thread: serve this client, or none."""
        self._wanted_client = client_incarnation
        self._wake_sender.send(b"\0")

    def close(self) -> None:
        self._closing = True
        self._wake_sender.send(b"\0")
        self._thread.join(timeout=1.0)
        self._wake_sender.close()
        self._wake_receiver.close()

    def _run(self) -> None:
        with zmq.Context() as context:
            while not self._closing:
                client = self._wanted_client
                dealer = self._open(context, client) if client is not None else None
                self._serve(dealer, client)
                if dealer is not None:
                    dealer.close(0)

    def _serve(self, dealer: zmq.Socket[bytes] | None, client: bytes | None) -> None:
        """Takes messages until another client is wanted."""
        poller = zmq.Poller()
        poller.register(self._wake_receiver, zmq.POLLIN)
        if dealer is not None:
            poller.register(dealer, zmq.POLLIN)
        while self._wanted_client == client and not self._closing:
            events: dict[Any, int] = dict(poller.poll())
            if self._wake_receiver.fileno() in events:
                self._wake_receiver.recv(4096)
            if dealer is not None and dealer in events:
                self._on_frames(dealer.recv_multipart(), client)

    def _open(self, context: zmq.Context[Any], client: bytes) -> zmq.Socket[bytes]:
        dealer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.IDENTITY, self._identity)
        dealer.setsockopt(zmq.RCVHWM, 0)
        dealer.setsockopt(zmq.RECONNECT_IVL, 20)
        dealer.connect(self._address)
        dealer.send(client)  # opens the link: a ROUTER can only address a peer it has heard from
        return dealer

    def _on_frames(self, frames: list[bytes], client: bytes | None) -> None:
        """One message. Whatever is in it, the thread goes on."""
        if len(frames) != 3 or frames[0] != client:
            logger.warning("dropped an input message of %d frames: not from the present client", len(frames))
            return
        try:
            request_type = EngineCoreRequestType(frames[1])
            self._on_message(request_type, frames[2])
        except (ValueError, msgspec.MsgspecError) as error:
            logger.warning("dropped an undecodable input message: %s", error)

    def _on_message(self, request_type: EngineCoreRequestType, body: bytes) -> None:
        match request_type:
            case EngineCoreRequestType.ADD:
                self._put(self._build(decode_request(body)))
            case EngineCoreRequestType.ABORT:
                # In both queues: the eager one ends the request in the running step, the ordered one catches an ADD still queued before it.
                request_ids = decode_request_ids(body)
                self._abort_eagerly(request_ids)
                self._put(AbortRequests(request_ids))
            case EngineCoreRequestType.UTILITY:
                self._put(CallUtility(decode_utility_request(body)))

    def _build(self, request: EngineCoreRequest) -> EngineInput:
        try:
            return AddRequest(self._preprocess(request))
        except (ValueError, TypeError, OverflowError) as error:
            logger.warning("request %s could not be built: %s", request.request_id, error)
            return RejectRequest(request.request_id, request.client_index, str(error))
