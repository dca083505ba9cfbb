"""The engine's end of the handshake link: HELLO, phases, READY and heartbeats, from a thread that starts before the model loads.

The link stays open for life. On each connection the engine says HELLO; the api's INIT names the api's incarnation, and begins anew. A socket monitor
tells of a lost client within milliseconds; one that stays silent for engineHangTimeout is given up, and greeted anew should it speak again.
"""

import logging
import os
import threading
import time
from collections import deque
from typing import Any, Protocol

import msgspec
import zmq
from zmq.utils.monitor import parse_monitor_message

from stoker_engine.core.phase_record import PhaseRecord
from stoker_engine.core.pulse import EnginePulse
from stoker_engine.core.waker import Waker
from stoker_engine.drop_log import DropLog
from stoker_engine.protocol import (
    HEARTBEAT_SECONDS,
    PROTOCOL_VERSION,
    ClientHeartbeat,
    EngineCoreReadyResponse,
    EngineHandshakeMessage,
    EngineHandshakeMetadata,
    EnginePhase,
    Hello,
    ModelDownload,
    PhaseReport,
    decode_client_handshake,
    encode,
)

logger = logging.getLogger(__name__)

LINGER_MS = 1000
"""How long a closing link tries to deliver its last words."""


class ClientListener(Protocol):
    """Told which api is at the other end, from the handshake thread."""

    def client_connected(self, client_incarnation: bytes) -> None: ...

    def client_lost(self) -> None: ...


class HandshakeLink:
    """One DEALER, its monitor, and the thread that owns them. `report_phase`, `report_ready` and `close` may be called from any thread."""

    def __init__(self, address: str, identity: bytes, pulse: EnginePulse, listener: ClientListener, *, max_silence_seconds: float) -> None:
        self._address = address
        self._identity = identity
        self._pulse = pulse
        self._listener = listener
        self._max_silence_seconds = max_silence_seconds
        self._client: bytes | None = None
        self._is_greeted = False
        self._heard = pulse.clock.now()
        self._drops = DropLog(logger)
        self._outbox: deque[EngineHandshakeMessage] = deque()
        self._waker = Waker()
        self._closing = False
        self._close_deadline = 0.0
        self._connected = False
        self._record = PhaseRecord()
        self._ready: EngineCoreReadyResponse | None = None
        self._thread = threading.Thread(target=self._run, name="handshake", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def phase(self) -> EnginePhase:
        return self._record.phase

    @property
    def phase_report(self) -> PhaseReport:
        """The phase, with how long it has lasted."""
        return self._record.report

    @property
    def has_client(self) -> bool:
        """An api has said INIT, and is there."""
        return self._client is not None

    def greet_anew(self, reason: str) -> None:
        """From another thread: this client's requests are over. It learns of it by a HELLO, and its INIT begins anew."""
        logger.info("greeting the api anew: %s", reason)
        self._client = None
        self._greet()
        self._waker.wake()

    def report_phase(self, phase: EnginePhase, progress: float, download: ModelDownload | None = None, message: str = "") -> None:
        """`message` is what the engine waits for; empty while it goes on."""
        self._record.set(phase, progress, download, message)
        self._send(self.phase_report)

    def report_failure(self, message: str) -> None:
        """The engine's own words on why it ends."""
        self._record.fail(message)
        self._send(self.phase_report)

    def report_ready(self, ready: EngineCoreReadyResponse) -> None:
        self._ready = ready
        self._send(ready)
        self.report_phase(EnginePhase.READY, 1.0)

    def close(self) -> None:
        """Sends what is left and ends the thread."""
        self._close_deadline = time.monotonic() + LINGER_MS / 1000
        self._closing = True
        self._waker.wake()
        self._thread.join(timeout=3 * LINGER_MS / 1000)

    def _send(self, message: EngineHandshakeMessage) -> None:
        self._outbox.append(message)
        self._waker.wake()

    def _run(self) -> None:
        with zmq.Context() as context:
            dealer = context.socket(zmq.DEALER)
            dealer.setsockopt(zmq.IDENTITY, self._identity)
            dealer.setsockopt(zmq.LINGER, LINGER_MS)
            dealer.setsockopt(zmq.IMMEDIATE, 1)
            dealer.setsockopt(zmq.SNDHWM, 0)
            dealer.setsockopt(zmq.RECONNECT_IVL, 20)
            dealer.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
            monitor = dealer.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
            dealer.connect(self._address)
            poller = zmq.Poller()
            for pollable in (dealer, monitor, self._waker.fileno):
                poller.register(pollable, zmq.POLLIN)
            try:
                self._serve(dealer, monitor, poller)
            finally:
                dealer.disable_monitor()
                monitor.close(0)
                dealer.close()
                self._waker.close()

    def _serve(self, dealer: zmq.Socket[bytes], monitor: zmq.Socket[bytes], poller: zmq.Poller) -> None:
        next_heartbeat = time.monotonic() + HEARTBEAT_SECONDS
        # A failure that no api has heard of yet is worth a moment's wait for a connection.
        while not self._closing or (self.phase is EnginePhase.FAILED and not self._connected and time.monotonic() < self._close_deadline):
            events: dict[Any, int] = dict(poller.poll(max(0, int((next_heartbeat - time.monotonic()) * 1000))))
            self._pulse.clock.tick()
            if self._waker.fileno in events:
                self._waker.drain()
            if monitor in events:
                self._on_monitor_event(monitor)
            if dealer in events:
                self._on_message(dealer.recv_multipart())
            if time.monotonic() >= next_heartbeat:
                next_heartbeat = time.monotonic() + HEARTBEAT_SECONDS
                self._outbox.append(self._pulse.heartbeat())
                self._check_client()
            self._flush(dealer)
        self._flush(dealer)

    def _on_monitor_event(self, monitor: zmq.Socket[bytes]) -> None:
        event = parse_monitor_message(monitor.recv_multipart())["event"]
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._connected = True
            self._outbox.clear()
            self._greet()
        elif self._connected:
            self._connected = False
            self._lose_client("its connection closed")

    def _greet(self) -> None:
        self._is_greeted = True
        self._outbox += [Hello(PROTOCOL_VERSION, os.getpid()), self.phase_report]

    def _lose_client(self, reason: str) -> None:
        logger.info("the api is gone: %s", reason)
        self._client = None
        self._is_greeted = False
        self._listener.client_lost()

    def _check_client(self) -> None:
        """The fallback for a closed connection: an api that hangs, or is stopped, takes no outputs."""
        silence = self._pulse.clock.now() - self._heard
        if self._client is not None and silence > self._max_silence_seconds:
            self._lose_client(f"it has not been heard of for {silence:.0f} s")

    def _on_message(self, frames: list[bytes]) -> None:
        try:
            message = decode_client_handshake(frames[0])
        except msgspec.MsgspecError as error:
            self._drops.dropped("an undecodable handshake frame", error)
            return
        self._heard = self._pulse.clock.now()
        match message:
            case EngineHandshakeMetadata():
                self._on_init(message)
            case ClientHeartbeat() if self._client is None and self._is_greeted:
                self._is_greeted = False  # it may have crossed the HELLO, whose INIT follows
            case ClientHeartbeat() if self._client is None:
                self._greet()  # it was given up, or its INIT was lost: begin anew

    def _on_init(self, init: EngineHandshakeMetadata) -> None:
        if init.protocol_version != PROTOCOL_VERSION:
            self._drops.dropped("an INIT", f"the api speaks protocol {init.protocol_version}, this engine {PROTOCOL_VERSION}")
            self._outbox.append(PhaseReport(EnginePhase.FAILED, message=f"this engine speaks protocol {PROTOCOL_VERSION}"))
            return
        # Also where it is the api of before: one INIT is one beginning, and it knows nothing of earlier requests.
        self._client = init.client_incarnation
        self._listener.client_connected(init.client_incarnation)
        if self._ready is not None:
            self._outbox.append(self._ready)
            self._outbox.append(self.phase_report)

    def _flush(self, dealer: zmq.Socket[bytes]) -> None:
        """Sends what waits; without a connection it is dropped, since HELLO and the phase open the next one."""
        while self._outbox:
            message = self._outbox.popleft()
            if not self._connected:
                continue
            try:
                dealer.send(encode(message), zmq.NOBLOCK)
            except zmq.Again:
                return
