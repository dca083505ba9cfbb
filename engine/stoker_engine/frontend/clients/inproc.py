"""InprocClient: an engine core in this process. No sockets, no busy loop: `get_output` computes one step."""

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from stoker_engine.errors import EngineDeadError, EngineGenerateError, EngineNotReadyError
from stoker_engine.frontend.clients.base import EngineCoreClient
from stoker_engine.protocol import EngineCoreOutputs, EngineCoreReadyResponse, EngineCoreRequest, UtilityOutput, UtilityRequest


class InprocCore(Protocol):
    """An engine core with its executor. What it has to say comes from `take_outputs`."""

    @property
    def ready_response(self) -> EngineCoreReadyResponse: ...

    def add_request(self, request: EngineCoreRequest) -> None:
        """A request that cannot be run is answered by an output with FinishReason.ERROR. Raises EngineNotReadyError where the engine sleeps."""

    def abort_requests(self, request_ids: list[str]) -> None: ...

    def step(self) -> None:
        """Schedules, executes and updates once. What it raises is fatal."""

    def take_outputs(self) -> list[EngineCoreOutputs]: ...

    def call_utility(self, call: UtilityRequest, reply: Callable[[UtilityOutput], None]) -> None:
        """`reply` gets the answer: now, in a later step, or from another thread."""

    def shutdown(self) -> None: ...


class InprocClient(EngineCoreClient):
    """Everything happens in the calling thread. A step that raises ends the engine: that call and every later one get EngineDeadError."""

    def __init__(self, core: InprocCore) -> None:
        self._core: InprocCore | None = core
        self._ready_response = core.ready_response
        self._outputs: deque[EngineCoreOutputs] = deque()
        self._call_ids = itertools.count()
        self._failure: EngineDeadError | None = None

    @property
    def ready_response(self) -> EngineCoreReadyResponse:
        self._live_core()
        return self._ready_response

    def add_request(self, request: EngineCoreRequest) -> None:
        self._live_core().add_request(request)

    def abort_requests(self, request_ids: list[str]) -> None:
        if request_ids and self._core is not None:
            self._core.abort_requests(request_ids)

    def get_output(self) -> EngineCoreOutputs:
        """Outputs that wait, else those of one step: perhaps none."""
        core = self._live_core()
        self._outputs.extend(core.take_outputs())
        if not self._outputs:
            self._step(core)
        return self._outputs.popleft() if self._outputs else EngineCoreOutputs()

    def call_utility(self, method: str, *args: Any) -> Any:
        """Steps until the answer is there: a call may wait for the requests in flight."""
        core = self._live_core()
        answers: deque[UtilityOutput] = deque()
        core.call_utility(UtilityRequest(next(self._call_ids), method, list(args)), answers.append)
        while not answers:
            self._step(core)
        if answers[0].failure_message is not None:
            raise EngineGenerateError(answers[0].failure_message)
        return answers[0].result

    def shutdown(self) -> None:
        core, self._core = self._core, None
        self._outputs.clear()
        if core is not None:
            core.shutdown()

    def _live_core(self) -> InprocCore:
        if self._failure is not None:
            raise self._failure
        if self._core is None:
            raise EngineNotReadyError("the engine is shut down")
        return self._core

    def _step(self, core: InprocCore) -> None:
        try:
            core.step()
        except BaseException as error:
            # An interrupted step has been scheduled and not accounted for: no later one could be right.
            self._failure = EngineDeadError(f"the engine failed: {type(error).__name__}: {error}")
            self.shutdown()
            if not isinstance(error, Exception):
                raise
            raise self._failure from error
        self._outputs.extend(core.take_outputs())
