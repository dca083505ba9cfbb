"""SyncMPClient: an AsyncMPClient on an event-loop thread of its own, for code that blocks."""

import asyncio
import functools
import logging
import os
import queue
import threading
import time
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from stoker_engine.errors import EngineDeadError, EngineNotReadyError
from stoker_engine.frontend.clients.async_mp import AsyncMPClient
from stoker_engine.frontend.clients.base import ClientConfig, EngineCoreClient
from stoker_engine.frontend.engine_status import EngineState, EngineStatus
from stoker_engine.protocol import EngineCoreOutputs, EngineCoreReadyResponse, EngineCoreRequest

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
Outputs = queue.SimpleQueue[EngineCoreOutputs | EngineDeadError]

RECEIVER = "receiver"
POLL_SECONDS = 0.01
MAX_WAIT_SECONDS = 1.0
"""A paused engine says nothing for as long as it is paused: its one user must be able to resume it."""


class SyncMPClient(EngineCoreClient):
    """Binds the sockets; an engine may come, die and come back behind them. Safe to use from several threads.

    Raises SocketDirectoryError where the directory is not writable or another client holds it. Closed by `shutdown`, at the latest when it is collected
    or the interpreter ends.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._loop = _LoopThread(config)
        self._finalizer = weakref.finalize(self, self._loop.close)

    @property
    def status(self) -> EngineStatus:
        return self._loop.client.status

    @property
    def is_ready(self) -> bool:
        """Requests are taken."""
        return self._finalizer.alive and self._loop.client.is_ready

    @property
    def ready_response(self) -> EngineCoreReadyResponse:
        ready = self.status.ready
        if ready is None or not self.is_ready:
            raise EngineNotReadyError(self._explanation)
        return ready

    def add_request(self, request: EngineCoreRequest) -> None:
        self._wait_out_silence()
        self._call(self._loop.client.add_request(request))

    def abort_requests(self, request_ids: list[str]) -> None:
        if request_ids and self._finalizer.alive:
            with suppress(EngineDeadError):  # shut down by another thread just now
                self._loop.call(self._loop.client.abort_requests(request_ids))

    def get_output(self) -> EngineCoreOutputs:
        """Empty outputs where none came for MAX_WAIT_SECONDS."""
        try:
            item = self._loop.outputs.get(timeout=MAX_WAIT_SECONDS)
        except queue.Empty:
            return EngineCoreOutputs()
        if isinstance(item, EngineDeadError):
            if not self._finalizer.alive:
                self._loop.outputs.put(item)  # for whoever else waits, and for later calls
            raise item
        return item

    def call_utility(self, method: str, *args: Any) -> Any:
        self._wait_out_silence()
        return self._call(self._loop.client.call_utility(method, *args))

    def shutdown(self) -> None:
        self._finalizer()

    @property
    def _explanation(self) -> str:
        return self.status.explanation if self._finalizer.alive else "the client is shut down"

    def _wait_out_silence(self) -> None:
        """Who blocks has the time: an engine that is silent for a moment is heard of again, or given up after `hang_seconds`."""
        while self._finalizer.alive and self.status.state is EngineState.UNRESPONSIVE:
            time.sleep(POLL_SECONDS)

    def _call(self, call: Coroutine[Any, Any, ResultT]) -> ResultT:
        if not self._finalizer.alive:
            call.close()
            raise EngineNotReadyError(self._explanation)
        return self._loop.call(call)


class _LoopThread:
    """The event loop, the client that lives in it, and a queue of what that client receives. Knows nothing of who uses it."""

    def __init__(self, config: ClientConfig) -> None:
        self.outputs: Outputs = queue.SimpleQueue()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._is_closing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="engine-client", daemon=True)
        self._thread.start()
        try:
            self.client = self.call(_make_client(config, self.outputs))
        except BaseException:
            self._stop()
            self._thread.join()
            raise

    def call(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Runs `coroutine` in the loop and waits for it; interrupted, it is cancelled."""
        future = self._submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        if os.getpid() != self._pid:
            return  # a forked child has neither the thread nor a right to the sockets
        with self._lock:
            self._is_closing = True
        closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        if threading.current_thread() is not self._thread:  # where the collector may run, too
            closing.result()
            self._thread.join()

    def _submit(self, coroutine: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        """What comes after `close` would never run, and what comes before it is ended by it."""
        with self._lock:
            if not self._is_closing and os.getpid() == self._pid:
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        coroutine.close()
        raise EngineDeadError("the client is shut down" if self._is_closing else "the client belongs to the process that this one was forked from")

    async def _close(self) -> None:
        try:
            await self.client.shutdown()
            await _end_tasks()
        finally:
            self.outputs.put(EngineDeadError("the client is shut down"))
            self._loop.call_soon(self._stop)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)


async def _make_client(config: ClientConfig, outputs: Outputs) -> AsyncMPClient:
    client = AsyncMPClient(config)
    for task in client.tasks:
        task.add_done_callback(functools.partial(_task_ended, outputs))
    asyncio.create_task(_receive(client, outputs), name=RECEIVER).add_done_callback(functools.partial(_task_ended, outputs))
    return client


async def _receive(client: AsyncMPClient, outputs: Outputs) -> None:
    while True:
        try:
            outputs.put(await client.get_output())
        except EngineDeadError as error:
            outputs.put(error)


def _task_ended(outputs: Outputs, task: asyncio.Task[None]) -> None:
    """Tasks only end by cancellation; anything else is a fault that must not leave anyone waiting."""
    if not task.cancelled():
        error = task.exception() or RuntimeError(f"{task.get_name()} ended")
        logger.critical("the engine client failed", exc_info=error)
        outputs.put(EngineDeadError(f"the client failed: {error}"))


async def _end_tasks() -> None:
    """Lets the calls that the client has just failed tell their callers, and cancels the rest."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    calls = {task for task in others if task.get_name() != RECEIVER}
    if calls:
        await asyncio.wait(calls, timeout=1.0)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
