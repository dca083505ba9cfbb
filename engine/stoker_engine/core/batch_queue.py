"""Several steps under way: while the executor computes one, the next is scheduled and handed over, so that the device never waits for the scheduler."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from stoker_engine.core.constrained import awaits_tokens, make_grammar_output
from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.scheduler import Scheduler
from stoker_engine.core.scheduler_output import SchedulerOutput
from stoker_engine.core.stepping import StepUpdate, failure_logged
from stoker_engine.executor.base import Executor
from stoker_engine.executor.pending import Pending


@dataclass(slots=True, frozen=True)
class Batch:
    """A step under way. `sampled` is None while the sampling is deferred, and for a step of zero tokens, which the forward answers."""

    scheduler_output: SchedulerOutput
    forward: Pending[ModelRunnerOutput | None]
    sampled: Pending[ModelRunnerOutput] | None

    def result(self) -> ModelRunnerOutput:
        """Waits for it. A failure of the forward is told as such, not as the sampling's."""
        output = self.forward.result()
        if output is None and self.sampled is not None:
            output = self.sampled.result()
        if output is None:
            raise RuntimeError("the executor gave no result for a step")
        return output


class BatchQueue:
    """At most `max_batches` steps under way, whose results are taken in their order. `take_aborts` ends what was aborted meanwhile.

    A step's sampling is deferred where a grammar needs a token of a step before it; nothing is scheduled until it has been made up for.
    """

    def __init__(self, scheduler: Scheduler, executor: Executor, take_aborts: Callable[[], None], max_batches: int) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._take_aborts = take_aborts
        self._max_batches = max_batches
        self._batches: deque[Batch] = deque()
        self._deferred: Batch | None = None

    @property
    def num_in_flight(self) -> int:
        return len(self._batches) + (self._deferred is not None)

    def step(self) -> StepUpdate:
        """Hands one more step over, if there is one. Waits for the oldest result only where that leaves no room, or there is nothing to schedule."""
        if self._deferred is None and self._scheduler.has_requests():
            scheduler_output = self._scheduler.schedule()
            executed = scheduler_output.total_num_scheduled_tokens > 0
            if executed or scheduler_output.finished_request_ids or scheduler_output.preempted_request_ids:
                self._hand_over(scheduler_output)
            elif not self._batches:
                self._take_aborts()
                return StepUpdate(self._scheduler.update_from_output(scheduler_output, ModelRunnerOutput()), executed=False)
            if executed and self.num_in_flight < self._max_batches:
                return StepUpdate(None, executed=True)
        return self._take_oldest()

    def _hand_over(self, scheduler_output: SchedulerOutput) -> None:
        with failure_logged(self._scheduler, scheduler_output):
            forward = self._executor.execute_model(scheduler_output)
            if not scheduler_output.total_num_scheduled_tokens:
                self._batches.append(Batch(scheduler_output, forward, None))
            elif awaits_tokens(self._scheduler):
                self._deferred = Batch(scheduler_output, forward, None)
            else:
                self._sample(scheduler_output, forward)

    def _sample(self, scheduler_output: SchedulerOutput, forward: Pending[ModelRunnerOutput | None]) -> None:
        sampled = self._executor.sample_tokens(make_grammar_output(self._scheduler))
        self._batches.append(Batch(scheduler_output, forward, sampled))

    def _take_oldest(self) -> StepUpdate:
        batch = self._batches.popleft()
        with failure_logged(self._scheduler, batch.scheduler_output):
            output = batch.result()
        self._take_aborts()
        outputs = self._scheduler.update_from_output(batch.scheduler_output, output)
        deferred = self._deferred
        if deferred is not None and not awaits_tokens(self._scheduler):
            self._deferred = None
            with failure_logged(self._scheduler, deferred.scheduler_output):
                self._sample(deferred.scheduler_output, deferred.forward)
        return StepUpdate(outputs, executed=batch.sampled is not None)
