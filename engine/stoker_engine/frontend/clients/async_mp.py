"""AsyncMPClient: the asyncio end of the three sockets of an engine in another process."""

import asyncio
import functools
import logging
from collections.abc import Sequence
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from stoker_engine.addresses import SocketAddresses
from stoker_engine.drop_log import DropLog
from stoker_engine.errors import EngineDeadError, EngineNotReadyError, ParameterError
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.frontend.clients.message_reader import MessageReader
from stoker_engine.frontend.clients.output_queue import OutputQueue
from stoker_engine.frontend.clients.unanswered import UnansweredRequests
from stoker_engine.frontend.clients.utility_calls import UtilityCalls
from stoker_engine.frontend.engine_status import EngineStatus
from stoker_engine.frontend.handshake import HandshakeServer
from stoker_engine.frontend.socket_directory import SocketDirectory, private_umask
from stoker_engine.protocol import (
    ENGINE_CORE_DEAD,
    HEARTBEAT_SECONDS,
    MAX_REQUEST_ID_LENGTH,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineCoreRequestType,
    UtilityRequest,
    encode,
    max_body_bytes,
    new_incarnation,
)
from stoker_engine.serialization import MessageDecoder, MessageEncoder

logger = logging.getLogger(__name__)

FAREWELL_SECONDS = 0.05
"""The end of an engine is noticed on one socket while its last outputs arrive on another."""
IDS_PER_ABORT = 1000
"""A message of so many of the longest ids is within what an engine takes."""
MAX_OPENING_BYTES = 4096
"""Of what an engine sends on its input link: an opening. A peer that sends more is disconnected."""


class AsyncMPClient:
    """Made and used in one event loop. Takes the socket directory and binds; engines come and go behind it.

    Raises SocketDirectoryError where the directory is not writable or another api holds it.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.incarnation = new_incarnation()
        addresses = SocketAddresses(config.socket_dir)
        self._directory = SocketDirectory(addresses)
        self._context = zmq.asyncio.Context()
        with private_umask():
            self._handshake = HandshakeServer(self._context, addresses.handshake, self.incarnation, config=config, on_engine_lost=self._engine_lost)
            plain = zmq.Context(self._context)
            self._input = plain.socket(zmq.ROUTER)
            for option, value in ((zmq.LINGER, 0), (zmq.ROUTER_MANDATORY, 1), (zmq.SNDHWM, 0), (zmq.MAXMSGSIZE, MAX_OPENING_BYTES)):
                self._input.setsockopt(option, value)
            self._input.bind(addresses.input)
            self._output = plain.socket(zmq.PULL)
            self._output.setsockopt(zmq.RCVHWM, 0)
            self._output.bind(addresses.output)
        self._directory.remember()
        self._route: bytes | None = None
        """Where the input link of the present engine is; None until it has opened it."""
        self._engine: bytes | None = None
        self._newest_opening = b"", b""
        self._farewell: tuple[asyncio.TimerHandle, str] | None = None
        """The end of an engine, and why, told to its requests when its last outputs are here."""
        self._outputs = OutputQueue()
        self._calls = UtilityCalls(self._handshake.wait_for_phase)
        self._unanswered = UnansweredRequests()
        self._decoder = MessageDecoder(EngineCoreOutputs)
        self._drops = DropLog(logger)
        self._reader = MessageReader(self._output, self._take_message)
        self._openings = MessageReader(self._input, self._take_opening)
        self._handshake.start()
        self._tasks = [asyncio.create_task(reader.wait_for_failure()) for reader in (self._reader, self._openings)]
        self._tasks.append(asyncio.create_task(self._watch_directory()))
        for task in self._tasks:
            task.add_done_callback(functools.partial(_fail_calls, self._calls))

    @property
    def status(self) -> EngineStatus:
        return self._handshake.status

    @property
    def is_ready(self) -> bool:
        """Requests are taken: the engine is READY and its input link is open."""
        return self.is_linked and self.status.is_ready

    @property
    def takes_calls(self) -> bool:
        """Utility methods may be called: also of an engine that sleeps."""
        return self.is_linked and self.status.takes_calls

    @property
    def is_linked(self) -> bool:
        """The engine's input link is open, whatever its status."""
        is_open = self._route is not None and self._engine == self._handshake.identity and not self._outputs.holds_an_end
        return is_open and not any(task.done() for task in self._tasks)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """They run until `shutdown`; one that ends earlier has failed."""
        return [*self._tasks, *self._handshake.tasks]

    async def add_request(self, request: EngineCoreRequest) -> None:
        if not self.is_ready:
            raise EngineNotReadyError(self.status.explanation)
        if len(request.request_id) > MAX_REQUEST_ID_LENGTH:  # the engine could tell nobody that it cannot read it
            raise ParameterError(f"request_id must have at most {MAX_REQUEST_ID_LENGTH} characters, got {len(request.request_id)}", "request_id")
        body = encode(request)
        self._check_size([body])
        obstacle = self._unanswered.obstacle(len(body))
        if obstacle is not None:
            raise EngineNotReadyError(obstacle)
        self._unanswered.sent(request.request_id, len(body))
        try:
            self._send(EngineCoreRequestType.ADD, [body])
        except EngineDeadError:
            self._unanswered.forget([request.request_id])
            raise

    async def abort_requests(self, request_ids: list[str]) -> None:
        self._unanswered.forget(request_ids)
        request_ids = [request_id for request_id in request_ids if len(request_id) <= MAX_REQUEST_ID_LENGTH]  # one that is longer would make all unreadable
        if request_ids and self._route is not None:
            try:
                for start in range(0, len(request_ids), IDS_PER_ABORT):
                    self._send(EngineCoreRequestType.ABORT, [encode(request_ids[start : start + IDS_PER_ABORT])])
            except EngineDeadError:
                return  # its requests died with it

    async def get_output(self) -> EngineCoreOutputs:
        return await self._outputs.get()

    async def call_utility(self, method: str, *args: Any) -> Any:
        if not self.takes_calls:
            raise EngineNotReadyError(self.status.explanation)
        with self._calls.open() as (call_id, answer):
            frames = MessageEncoder().encode(UtilityRequest(call_id, method, list(args)))
            self._check_size(frames)
            self._send(EngineCoreRequestType.UTILITY, frames)
            return await answer

    async def shutdown(self) -> None:
        if self._context.closed:
            return
        if self._farewell is not None:
            self._farewell[0].cancel()
        self._reader.close()
        self._openings.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._calls.fail_all(EngineDeadError("the client is shut down"))
        await self._handshake.close()
        self._input.close(0)
        self._output.close(0)
        self._context.term()
        self._directory.release()

    def _check_size(self, frames: Sequence[bytes | memoryview]) -> None:
        """The engine would drop it unread."""
        size, ready = sum(map(len, frames)), self.status.ready
        if ready is not None and size > max_body_bytes(ready):
            raise ParameterError(f"a message of {size} bytes is more than the {max_body_bytes(ready)} that the engine takes")

    def _send(self, request_type: EngineCoreRequestType, frames: Sequence[bytes | memoryview]) -> None:
        if self._route is None:
            raise EngineDeadError(self.status.explanation)
        try:
            self._input.send_multipart([self._route, self.incarnation, request_type.value, *frames], zmq.NOBLOCK)
        except zmq.ZMQError as error:  # EHOSTUNREACH, EAGAIN: the peer has gone or never opened its link
            raise EngineDeadError(f"the engine cannot be reached: {error.strerror}") from error
        finally:
            self._openings.has_sent()

    def _take_opening(self, frames: list[bytes]) -> None:
        """An engine opens its input link with this client's incarnation and its own identity: from then on it can be addressed."""
        if [len(frame) for frame in frames[3:]] != [8] or frames[1] != self.incarnation or frames[2] != self._handshake.identity:
            self._drops.dropped(f"{len(frames)} frames on the input link", "no opening by the present engine for this api")
        elif frames[2] != self._newest_opening[0] or frames[3] > self._newest_opening[1]:
            self._newest_opening = frames[2], frames[3]
            self._end_farewell()
            self._route, self._engine = frames[0], frames[2]

    async def _watch_directory(self) -> None:
        """Fails where a socket's path is gone: an api that nobody can reach must not look alive."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            self._directory.check()

    def _take_message(self, frames: list[bytes]) -> None:
        if len(frames) < 3 or frames[0] != self.incarnation or frames[1] != self._engine:
            self._drops.dropped(f"an output message of {len(frames)} frames", "not of the present engine for this api")
            return
        if frames[2] == ENGINE_CORE_DEAD:
            self._engine_lost("it failed; its log has the cause")
            self._end_farewell()
            return
        try:
            outputs = self._decoder.decode(frames[2:])
        except msgspec.MsgspecError as error:
            self._drops.dropped("an undecodable output message", error)
            return
        if outputs.utility_output is not None:
            self._calls.take_answer(outputs.utility_output)
        else:
            self._unanswered.answered(outputs.outputs)
            self._outputs.put(outputs)

    def _engine_lost(self, reason: str) -> None:
        """No more requests to it; its last outputs may still be on their way, so its requests fail a moment later."""
        self._route = None
        if self._engine is not None and self._farewell is None:
            self._await_last_outputs(reason)

    def _await_last_outputs(self, reason: str) -> None:
        self._farewell = asyncio.get_running_loop().call_later(FAREWELL_SECONDS, self._farewell_over, reason), reason

    def _farewell_over(self, reason: str) -> None:
        if self._reader.read():
            self._await_last_outputs(reason)  # the event loop was late: more is here, unread
        else:
            self._end_farewell()

    def _end_farewell(self) -> None:
        if self._farewell is None:
            return
        timer, reason = self._farewell
        timer.cancel()
        self._farewell = self._engine = None
        self._unanswered.clear()
        error = EngineDeadError(f"the engine is gone: {reason}")
        self._outputs.put_end(error)
        self._calls.fail_all(error)


def _fail_calls(calls: UtilityCalls, task: asyncio.Task[None]) -> None:
    """A client with a fault gets no answers: nobody may go on waiting for one."""
    if not task.cancelled():
        calls.fail_all(EngineDeadError(f"the client failed: {task.exception()}"))
