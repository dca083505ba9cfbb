"""One step after the other: schedule, forward, sampling, update."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from stoker_engine.core.constrained import make_grammar_output
from stoker_engine.core.scheduler import Scheduler
from stoker_engine.core.scheduler_output import SchedulerOutput
from stoker_engine.core.scheduler_update import OutputLists
from stoker_engine.executor.base import Executor

logger = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class StepUpdate:
    """`outputs` by client; None where no step's result was taken. `executed` is False where nothing was computed."""

    outputs: OutputLists | None
    executed: bool


class Stepping(Protocol):
    """How steps follow each other."""

    @property
    def num_in_flight(self) -> int:
        """Steps that the executor was given and whose results have not been taken."""

    def step(self) -> StepUpdate:
        """Goes on by one step, where the scheduler has requests or steps are in flight. What the executor raises is logged with the step that caused
        it, and raised."""


class PlainStepping:
    """A step is done before the next one is scheduled. `take_aborts` ends what was aborted while it was computed."""

    def __init__(self, scheduler: Scheduler, executor: Executor, take_aborts: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._take_aborts = take_aborts

    @property
    def num_in_flight(self) -> int:
        return 0

    def step(self) -> StepUpdate:
        scheduler_output = self._scheduler.schedule()
        executed = scheduler_output.total_num_scheduled_tokens > 0
        with failure_logged(self._scheduler, scheduler_output):
            forward = self._executor.execute_model(scheduler_output)
            grammar_output = make_grammar_output(self._scheduler) if executed else None
            output = forward.result()
            if output is None:
                output = self._executor.sample_tokens(grammar_output).result()
        self._take_aborts()
        return StepUpdate(self._scheduler.update_from_output(scheduler_output, output), executed)


@contextmanager
def failure_logged(scheduler: Scheduler, scheduler_output: SchedulerOutput) -> Iterator[None]:
    """Where the executor fails, the log says in which step, and what else went on."""
    try:
        yield
    except Exception:
        logger.error("a step failed: %s; %s", scheduler_output, scheduler.make_stats())
        raise
