"""An engine core with its executor, for a client in the same process."""

import time
from collections.abc import Callable

from stoker_engine.config import EngineConfig
from stoker_engine.core.engine_core import YIELD_SECONDS, EngineCore, OutputsByClient
from stoker_engine.core.utility import UtilityCalls
from stoker_engine.errors import EngineNotReadyError
from stoker_engine.executor.base import Executor
from stoker_engine.finish_reason import FinishReason
from stoker_engine.protocol import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreReadyResponse,
    EngineCoreRequest,
    EnginePhase,
    ModelDownload,
    UtilityOutput,
    UtilityRequest,
)


class EngineCoreInproc:
    """Does what EngineCoreProc does between its queues, one call at a time. `executor` is shut down with it, also when construction fails."""

    def __init__(self, config: EngineConfig, executor: Executor) -> None:
        self._outputs: list[EngineCoreOutputs] = []
        try:
            self._core = EngineCore(config, executor, _Unreported())
        except BaseException:
            executor.shutdown()
            raise
        self._utilities = UtilityCalls(self._core.control.methods())

    @property
    def ready_response(self) -> EngineCoreReadyResponse:
        return self._core.ready_response

    def add_request(self, request: EngineCoreRequest) -> None:
        if self._core.control.is_sleeping():
            raise EngineNotReadyError("the engine is sleeping")
        try:
            self._keep(self._core.add_request(self._core.preprocess(request)))
        except (ValueError, TypeError, OverflowError) as error:
            failed = EngineCoreOutput(request.request_id, [], FinishReason.ERROR, failure_message=str(error))
            self._keep({request.client_index: EngineCoreOutputs(outputs=[failed], timestamp=time.monotonic())})

    def abort_requests(self, request_ids: list[str]) -> None:
        self._core.abort_requests(request_ids)

    def step(self) -> None:
        result = self._core.step()
        self._keep(result.outputs)
        if not result.executed and self._core.scheduler.num_unfinished_requests:
            time.sleep(YIELD_SECONDS)

    def take_outputs(self) -> list[EngineCoreOutputs]:
        taken, self._outputs = self._outputs, []
        return taken

    def call_utility(self, call: UtilityRequest, reply: Callable[[UtilityOutput], None]) -> None:
        self._utilities.call(call, reply)

    def shutdown(self) -> None:
        self._core.executor.shutdown()

    def _keep(self, outputs: OutputsByClient) -> None:
        self._outputs.extend(outputs.values())


class _Unreported:
    """Nobody else watches an engine that starts in its caller's own thread."""

    def report_phase(self, phase: EnginePhase, progress: float, download: ModelDownload | None = None, message: str = "") -> None:
        return
