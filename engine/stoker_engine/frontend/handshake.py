"""The api's end of the handshake link: takes HELLO, answers INIT, and watches the engine's connection and heartbeats."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec
import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from stoker_engine.drop_log import DropLog
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.frontend.engine_record import EngineRecord
from stoker_engine.frontend.engine_status import EngineStatus
from stoker_engine.protocol import (
    HEARTBEAT_SECONDS,
    PROTOCOL_VERSION,
    ClientHandshakeMessage,
    ClientHeartbeat,
    EngineCoreReadyResponse,
    EngineHandshakeMetadata,
    EnginePhase,
    Heartbeat,
    Hello,
    PhaseReport,
    decode_engine_handshake,
    encode,
    parse_identity,
)

logger = logging.getLogger(__name__)

REPORT_SECONDS = 10.0
"""How long a report over one socket may be behind an answer over another."""
REPORT_POLL_SECONDS = 0.002

_SRCFD = 2
"""ZMQ_SRCFD of zmq.h: the file descriptor a frame came from, which is what monitor events name."""


class HandshakeServer:
    """The ROUTER of one api, and which engine is behind it. Lives in one event loop.

    `on_engine_lost` is called with a reason when the engine's connection closes, when HELLO is said in its place, or when it hangs. An engine that
    was given up so and is alive after all is greeted anew: INIT makes it forget its requests.
    """

    def __init__(
        self,
        context: zmq.asyncio.Context,
        address: str,
        client_incarnation: bytes,
        *,
        config: ClientConfig,
        on_engine_lost: Callable[[str], None],
    ) -> None:
        self._client_incarnation = client_incarnation
        self._config = config
        self._on_engine_lost = on_engine_lost
        self._router = context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._router.setsockopt(zmq.SNDHWM, 0)
        self._monitor = self._router.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._router.bind(address)
        self._identity: bytes | None = None
        self._given_up: bytes | None = None
        self._stranger: bytes | None = None
        self._fd = -1
        self._record = EngineRecord(config.hang_seconds)
        self._tasks: list[asyncio.Task[None]] = []
        self._drops = DropLog(logger)

    def start(self) -> None:
        self._tasks = [asyncio.create_task(work) for work in (self._receive(), self._send_heartbeats(), self._record.clock.run())]

    @property
    def identity(self) -> bytes | None:
        """The identity of the engine that is connected."""
        return self._identity

    @property
    def status(self) -> EngineStatus:
        return self._record.status(is_connected=self._identity is not None, is_given_up=self._given_up is not None)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """They run until `close`; one that ends earlier has failed."""
        return self._tasks

    async def wait_for_phase(self, number: int) -> None:
        """Returns when the report of this phase, or a later one, has come: whoever has put an engine to sleep or woken it finds it so."""
        deadline = time.monotonic() + REPORT_SECONDS
        while self._record.phase_number < number and self._identity is not None and time.monotonic() < deadline:
            await asyncio.sleep(REPORT_POLL_SECONDS)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._router.disable_monitor()
        self._monitor.close(0)
        self._router.close(0)

    async def _receive(self) -> None:
        poller = zmq.asyncio.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        while True:
            await poller.poll()
            # Connection events first: a file descriptor's number may already belong to the next engine, whose HELLO waits behind them.
            await self._drain_monitor()
            if await self._router.poll(0):
                await self._on_frames(await self._router.recv_multipart(copy=False))

    async def _drain_monitor(self) -> None:
        while await self._monitor.poll(0):
            event = parse_monitor_message(await self._monitor.recv_multipart())
            if event["event"] != zmq.EVENT_DISCONNECTED or event["value"] != self._fd:
                continue
            self._fd = -1
            if self._given_up is not None:
                self._given_up = None  # its requests have ended already
            elif self._identity is not None:
                self._engine_lost("its process ended")

    async def _on_frames(self, frames: list[zmq.Frame]) -> None:
        identity = frames[0].bytes
        try:
            index, _incarnation = parse_identity(identity)
            message = decode_engine_handshake(frames[1].bytes)
        except (ValueError, IndexError, msgspec.MsgspecError) as error:
            self._drops.dropped("an undecodable handshake frame", error)
            return
        if index != self._config.engine_index:
            self._drops.dropped(f"a handshake frame of engine {index}", f"this api serves engine {self._config.engine_index}")
        elif isinstance(message, Hello):
            await self._on_hello(identity, frames[0].get(_SRCFD), message)
        elif identity == self._identity:
            self._record.heard(message)
        elif identity == self._given_up:
            await self._on_report_of_given_up(identity, frames[0].get(_SRCFD), message)
        elif isinstance(message, PhaseReport) and self._identity is None:
            self._record.last_words(message)
        elif self._identity is None and identity == self._stranger and isinstance(message, Heartbeat):
            # What took its place is gone, and it has spoken twice since: it lives.
            await self._adopt(identity, frames[0].get(_SRCFD))
        else:
            self._stranger = identity if self._identity is None else None
            self._drops.dropped("a handshake frame", "another engine has taken the place of the one that sent it")

    async def _on_report_of_given_up(self, identity: bytes, fd: Any, message: PhaseReport | EngineCoreReadyResponse | Heartbeat) -> None:
        """It may tell why it ends, or show that its loop turns again."""
        if isinstance(message, PhaseReport) and message.phase is EnginePhase.FAILED:
            self._record.take(message)
        elif isinstance(message, Heartbeat) and max(message.step_age, message.loop_age) <= self._config.hang_seconds:
            logger.info("engine %d goes on: beginning anew", self._config.engine_index)
            await self._adopt(identity, fd)

    async def _on_hello(self, identity: bytes, fd: Any, hello: Hello) -> None:
        if hello.protocol_version != PROTOCOL_VERSION:
            self._drops.dropped("an engine's HELLO", f"it speaks protocol {hello.protocol_version}, this api {PROTOCOL_VERSION}")
            if self._identity is None:
                self._record.refuse(f"protocol {hello.protocol_version}, the api speaks {PROTOCOL_VERSION}")
            return
        if self._identity is not None:
            self._engine_lost("it began anew" if identity == self._identity else "another engine took its place")
        logger.info("engine %d, pid %d, said hello", self._config.engine_index, hello.pid)
        await self._adopt(identity, fd)

    async def _adopt(self, identity: bytes, fd: Any) -> None:
        self._given_up = None
        self._identity, self._fd = identity, int(fd)
        self._record.begin()
        await self._send(EngineHandshakeMetadata(PROTOCOL_VERSION, self._client_incarnation))

    def _engine_lost(self, reason: str) -> None:
        logger.warning("engine %d is gone: %s", self._config.engine_index, reason)
        self._identity = None
        self._record.end(reason)
        self._on_engine_lost(reason)

    def _give_up(self, identity: bytes, reason: str) -> None:
        """Its requests end now; its connection stays, and whether it closes is watched."""
        self._record.give_up(reason)
        self._engine_lost(reason)
        self._given_up = identity

    async def _send(self, message: ClientHandshakeMessage) -> None:
        """An engine that cannot be reached has gone before its HELLO was read."""
        if self._identity is None:
            return
        try:
            await self._router.send_multipart([self._identity, encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            self._engine_lost(f"it cannot be reached: {error.strerror}")

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            if self._identity is not None and (reason := self.status.hang_reason) is not None:
                self._give_up(self._identity, reason)
            await self._send(ClientHeartbeat())
