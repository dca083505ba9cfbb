"""OutputProcessor: EngineCoreOutputs → RequestOutputs, given to each request's collector, or returned where it has none."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from stoker_engine.errors import EngineBusyError, EngineGenerateError, ParameterError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.admission import QueuedRequests
from stoker_engine.frontend.output_collector import RequestOutputCollector
from stoker_engine.frontend.parallel_sampling import ParentRequest
from stoker_engine.frontend.request_state import RequestState
from stoker_engine.outputs import RequestOutput
from stoker_engine.protocol import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest
from stoker_engine.stats import IterationStats
from stoker_engine.tokenizer import Tokenizer


@dataclass(slots=True)
class ProcessedOutputs:
    """`request_outputs` are those of requests without a collector. The core still runs `request_ids_to_abort`."""

    request_outputs: list[RequestOutput] = field(default_factory=list)
    request_ids_to_abort: list[str] = field(default_factory=list)
    iteration_stats: IterationStats = field(default_factory=IterationStats)


class OutputProcessor:
    """The requests in flight, by internal id. Belongs to one thread, with collectors to one event loop."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._states: dict[str, RequestState] = {}
        self._internal_ids: dict[str, dict[str, None]] = {}
        """External id, or a parent's internal id → the internal ids of its requests in flight, in order."""
        self._next = ProcessedOutputs()
        self.queued = QueuedRequests()

    @property
    def num_requests(self) -> int:
        """Engine requests in flight; a request with n choices counts n at its start."""
        return len(self._states)

    def add_request(
        self, request: EngineCoreRequest, prompt: str | None, parent: ParentRequest | None, index: int, queue: RequestOutputCollector | None
    ) -> None:
        """Expect outputs for a request that is about to be sent. `index` is its place in `parent`, 0 without one."""
        if request.request_id in self._states:
            raise ValueError(f"request id {request.request_id!r} is in flight already")
        state = RequestState(self._tokenizer, request, prompt, parent, index, queue)
        self._states[request.request_id] = state
        self.queued.add(request.request_id, len(request.prompt_token_ids))
        self._next.iteration_stats.num_new_requests += 1
        for group in _groups(state):
            self._internal_ids.setdefault(group, {})[request.request_id] = None

    def process_outputs(self, outputs: EngineCoreOutputs) -> ProcessedOutputs:
        """Take one message of the engine. Outputs of unknown requests (aborted meanwhile) are ignored."""
        processed = self.begin_message()
        self.process_some(outputs.outputs, outputs.timestamp, processed)
        return processed

    def begin_message(self) -> ProcessedOutputs:
        """What is pending from between two messages; the next message adds to it."""
        processed, self._next = self._next, ProcessedOutputs()
        return processed

    def process_some(self, outputs: Iterable[EngineCoreOutput], timestamp: float, processed: ProcessedOutputs) -> None:
        """Take a part of a message that the engine stamped with `timestamp`."""
        now = time.time()
        for output in outputs:
            state = self._states.get(output.request_id)
            if state is None:
                continue
            self.queued.discard(output.request_id)
            state.times.record(output, timestamp, now, processed.iteration_stats)
            if output.finish_reason is FinishReason.ERROR:
                processed.request_ids_to_abort += self._fail(state, _failure(output), processed)
            else:
                self._append(state, output, processed)

    @property
    def has_pending_outputs(self) -> bool:
        """Requests without a collector have outputs that no message brought: those of aborts."""
        return bool(self._next.request_outputs)

    def abort_requests(self, request_ids: Iterable[str]) -> list[str]:
        """End the requests with these ids, external or internal, a parent's or a child's; unknown ones are ignored.

        Each gets a final output with FinishReason.ABORT: in its collector, or from the next `process_outputs`. Returns the internal ids to tell the core.
        """
        aborted = []
        for request_id in request_ids:
            for internal_id in [request_id] if request_id in self._states else list(self._internal_ids.get(request_id, ())):
                state = self._states[internal_id]
                state.finish(FinishReason.ABORT)
                self._end(state, self._next)
                aborted.append(internal_id)
        return aborted

    def fail_requests(self, request_ids: Iterable[str], error: Exception) -> list[str]:
        """End the requests with these internal ids: their consumers get `error`. Returns the internal ids of other choices of theirs, to tell the core."""
        failed = [state for request_id in request_ids if (state := self._states.get(request_id)) is not None]
        siblings: list[str] = []
        for state in failed:
            if state.request.request_id in self._states:
                siblings += self._fail(state, error, self._next)
        return [request_id for request_id in siblings if request_id not in {state.request.request_id for state in failed}]

    def fail_all_requests(self, error: Exception) -> None:
        """End all requests: their consumers get `error`."""
        self.fail_requests(list(self._states), error)

    def take_iteration_stats(self) -> IterationStats:
        """The numbers of requests that ended by `abort_requests` or `fail_requests` since the last call; if not taken, the next `process_outputs` has them."""
        stats, self._next.iteration_stats = self._next.iteration_stats, IterationStats()
        return stats

    def _append(self, state: RequestState, output: EngineCoreOutput, processed: ProcessedOutputs) -> None:
        state.append(output)
        if state.finish_reason is None:
            self._deliver(state, processed)
            return
        if output.finish_reason is None:
            processed.request_ids_to_abort.append(output.request_id)
        self._end(state, processed)

    def _end(self, state: RequestState, processed: ProcessedOutputs) -> None:
        """Deliver the last output of a finished request and forget it."""
        if state.finish_reason is not None:
            self._deliver(state, processed)
            self._forget(state, state.finish_reason, processed)

    @staticmethod
    def _deliver(state: RequestState, processed: ProcessedOutputs) -> None:
        output = state.make_output()
        if output is None:
            return
        if state.queue is None:
            processed.request_outputs.append(output)
        else:
            state.queue.put(output)

    def _fail(self, state: RequestState, error: Exception, processed: ProcessedOutputs) -> list[str]:
        """Give `error` to the consumer and forget the request with its siblings, whose ids are returned."""
        if state.queue is not None:
            state.queue.put(error)
            self._forget(state, FinishReason.ERROR, processed)
        else:
            state.fail(str(error))
            self._end(state, processed)
        siblings = [] if state.parent is None else list(self._internal_ids.get(state.parent.request_id, ()))
        for request_id in siblings:
            sibling = self._states[request_id]
            if sibling.queue is not None:
                self._forget(sibling, FinishReason.ABORT, processed)
            else:
                sibling.finish(FinishReason.ABORT)
                self._end(sibling, processed)
        return siblings

    def _forget(self, state: RequestState, reason: FinishReason, processed: ProcessedOutputs) -> None:
        request_id = state.request.request_id
        del self._states[request_id]
        self.queued.discard(request_id)
        for group in _groups(state):
            members = self._internal_ids[group]
            del members[request_id]
            if not members:
                del self._internal_ids[group]
        stats = state.finished_stats(reason, time.time())
        processed.iteration_stats.finished_requests.append(stats)
        if state.queue is not None:
            state.queue.finished.append(stats)


def _failure(output: EngineCoreOutput) -> EngineGenerateError | ParameterError:
    message = output.failure_message or "the engine gave no reason"
    if output.failed_parameter is not None:
        return ParameterError(message, output.failed_parameter)
    return EngineBusyError(message) if output.may_be_retried else EngineGenerateError(message)


def _groups(state: RequestState) -> set[str]:
    """The other ids under which a request can be aborted."""
    parent_id = None if state.parent is None else state.parent.request_id
    return {group for group in (state.request.external_request_id, parent_id) if group is not None}
