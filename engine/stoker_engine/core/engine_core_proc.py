"""EngineCoreProc: EngineCore in a process of its own, behind ZMQ. Three threads beside the main loop: handshake, input, output."""

import logging
import queue
import time
from contextlib import suppress

from stoker_engine.config import EngineConfig
from stoker_engine.core.engine_core import YIELD_SECONDS, EngineCore, OutputsByClient
from stoker_engine.core.engine_link import EngineLink
from stoker_engine.core.input_decoder import AbortRequests, AddRequest, CallUtility, ClientInput, RejectRequest
from stoker_engine.core.input_thread import ClientConnected, ClientLost, EngineInput, ExecutorFailed, Wakeup
from stoker_engine.core.shutdown import Shutdown, ShutdownState
from stoker_engine.core.structured_output import count_computable
from stoker_engine.core.utility import UtilityCalls
from stoker_engine.executor.base import Executor, ExecutorFailedError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.protocol import EngineCoreOutput, EngineCoreOutputs, EnginePhase, UtilityOutput

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.05
"""Between two looks at the deadline of a shutdown, while nothing else can happen."""


class EngineCoreProc(EngineCore):
    """Built in the process's main thread; `run_busy_loop` returns when the engine has shut down, and raises when a step fails."""

    def __init__(self, config: EngineConfig, executor: Executor, link: EngineLink, shutdown: Shutdown) -> None:
        self._link = link
        self._shutdown = shutdown
        self._client: bytes | None = None
        self._can_drain = True
        self.num_in_flight_at_shutdown = 0
        self.num_aborted_at_shutdown = 0
        executor.register_failure_callback(lambda message: link.inputs.put(ExecutorFailed(message)))
        super().__init__(config, executor, link.handshake)
        self._utilities = UtilityCalls(self.control.methods())
        link.start_io(self)
        shutdown.hand_to_loop()
        link.handshake.report_ready(self.ready_response)

    def run_busy_loop(self) -> None:
        while self._handle_shutdown():
            # 1) Wait for input until there is work, then take all there is.
            self._process_input_queue()
            # 2) Step, and send what came of it.
            self._process_engine_step()

    def grammar_compiled(self) -> None:
        self._link.inputs.put(Wakeup())

    def send_engine_dead(self) -> None:
        """Tells the client that this engine is about to end by a failure."""
        if self._client is not None:
            self._link.output.send_dead(self._client)

    def _process_input_queue(self) -> None:
        inputs = self._link.inputs
        pulse = self._link.pulse
        while self._shutdown.state is ShutdownState.RUNNING and self._is_idle():
            self._handle_input(inputs.get())
        pulse.turn()
        while True:
            try:
                item = inputs.get_nowait()
            except queue.Empty:
                return
            self._handle_input(item)

    def _is_idle(self) -> bool:
        """There is nothing to compute. What waited for that is done first: it takes as long as memory takes to move, and may be work itself."""
        if not self.has_work():
            self._link.pulse.idle()
            self.control.fire_if_idle()
        return not self.has_work()

    def _process_engine_step(self) -> None:
        pulse = self._link.pulse
        pulse.step_begins(count_computable(self.scheduler.state))
        try:
            result = self.step()
        finally:
            pulse.step_ended(count_computable(self.scheduler.state))
        if result.executed:
            pulse.computed()
        self._send(result.outputs)
        if not result.executed and self.scheduler.has_requests():
            self._await_change()

    def _await_change(self) -> None:
        """Nothing could be computed. What waits for grammars alone is told when one is there; other obstacles say nothing when they go."""
        if count_computable(self.scheduler.state):
            time.sleep(YIELD_SECONDS)
            return
        with suppress(queue.Empty):
            self._handle_input(self._link.inputs.get(timeout=LOOK_SECONDS))

    def _handle_input(self, item: EngineInput) -> None:
        match item:
            case ClientConnected(client_incarnation):
                self._drop_client()
                self._client = client_incarnation
            case ClientLost():
                self._drop_client()
                self._client = None
            case ExecutorFailed(message):
                raise ExecutorFailedError(message)
            case Wakeup():
                pass
            case _ if item.client == self._client:
                self._handle_client_input(item)
            case _:
                logger.warning("dropped a %s of an api that is gone", type(item).__name__)

    def _handle_client_input(self, item: ClientInput) -> None:
        match item:
            case AddRequest(_, request):
                if self._shutdown.state is not ShutdownState.SHUTTING_DOWN:
                    self._send(self.add_request(request))
                else:
                    self._reply(EngineCoreOutput(request.request_id, [], FinishReason.ABORT), request.client_index)
            case RejectRequest(_, request_id, client_index, message, parameter):
                output = EngineCoreOutput(request_id, [], FinishReason.ERROR, failure_message=message, failed_parameter=parameter)
                self._reply(output, client_index)
            case AbortRequests(_, request_ids):
                self.abort_requests(request_ids)
            case CallUtility(_, call):
                self._link.pulse.idle()  # a call that moves memory takes as long as it takes: it is no step that hangs
                self._utilities.call(call, self._reply_to_utility)
                self._link.pulse.turn()

    def _handle_shutdown(self) -> bool:
        """False when the loop must end."""
        shutdown = self._shutdown
        if shutdown.state is ShutdownState.RUNNING:
            return True
        if shutdown.state is ShutdownState.REQUESTED:
            self._process_input_queue()  # what arrived before the signal is in flight, too
            shutdown.begin()
            self.num_in_flight_at_shutdown = self.scheduler.num_unfinished_requests
            logger.info("shutting down on %s: %s, %d requests in flight", shutdown.cause, shutdown.mode.name.lower(), self.num_in_flight_at_shutdown)
            self._utilities.refuse("the engine is shutting down")
            self._can_drain = self.control.begin_drain()
            self._link.handshake.report_phase(EnginePhase.DRAINING, 0.0)
        num_unfinished = self.scheduler.num_unfinished_requests
        if num_unfinished and self._client is not None and self._can_drain and not shutdown.must_abort:
            return True
        self.num_aborted_at_shutdown += num_unfinished
        self._send(self.abort_all_requests())
        return False

    def _reply_to_utility(self, output: UtilityOutput) -> None:
        output.phase_number = self._link.handshake.phase_report.number
        self._send({0: EngineCoreOutputs(utility_output=output, timestamp=time.monotonic())})

    def _drop_client(self) -> None:
        """Nobody waits for its requests and calls any more, and nobody else knows of its pause."""
        self._utilities.forget()
        self.control.client_gone()
        count = self.scheduler.num_unfinished_requests
        self.abort_all_requests()
        if self._shutdown.state is ShutdownState.SHUTTING_DOWN:
            self.num_aborted_at_shutdown += count
        if count:
            logger.warning("aborted %d requests of an api that is gone", count)

    def _reply(self, output: EngineCoreOutput, client_index: int) -> None:
        self._send({client_index: EngineCoreOutputs(outputs=[output], timestamp=time.monotonic())})

    def _send(self, outputs: OutputsByClient) -> None:
        if self._client is None:
            return
        for message in outputs.values():
            message.engine_index = self.config.engine_index
            self._link.output.send(self._client, message)
