"""An EngineCore over a worker that hashes what its blocks hold, and that may work as late as its results allow; all that a client can do to it."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from stoker_engine.core.engine_core import EngineCore
from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.scheduler_output import SchedulerOutput
from stoker_engine.core.scheduler_state import PauseState
from stoker_engine.core.sleep import MEMORY_TAGS, SleepLevel
from stoker_engine.core.stepping import StepUpdate
from stoker_engine.errors import ParameterError
from stoker_engine.executor.base import ModelDescription, OnDownload
from stoker_engine.finish_reason import FinishReason
from stoker_engine.protocol import EngineCoreRequest, EnginePhase, PauseMode, SleepTag

MAX_MODEL_LEN = 28
VOCAB_SIZE = 29


class Jobs:
    """What the worker was given and has not done yet: one after the other, and, where it is `late`, none before its result is waited for."""

    def __init__(self, *, late: bool) -> None:
        self.late = late
        self._undone: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, job: Callable[[], Any]) -> "LateFuture":
        future = LateFuture(self)
        self._undone.append((future, job))
        if not self.late:
            self.finish()
        return future

    def finish(self, until: Future[Any] | None = None) -> None:
        while self._undone and (until is None or not until.done()):
            future, job = self._undone.popleft()
            future.set_result(job())

    def __len__(self) -> int:
        return len(self._undone)


class LateFuture(Future[Any]):
    def __init__(self, jobs: Jobs) -> None:
        super().__init__()
        self._jobs = jobs

    def result(self, timeout: float | None = None) -> Any:
        self._jobs.finish(until=self)
        return super().result(timeout)


class LateWorker:
    """The worker as the checks see it. What is poisoned meanwhile is poisoned in its turn."""

    def __init__(self, worker: Any, jobs: Jobs) -> None:
        self._worker, self._jobs = worker, jobs
        self.requests, self.slots = worker.requests, worker.slots

    def poison(self, block_ids: Iterable[int]) -> None:
        block_ids = list(block_ids)
        if len(self._jobs):
            self._jobs.submit(lambda: self._worker.poison(block_ids))
        else:
            self._worker.poison(block_ids)


class CoreExecutor:
    """What EngineCore calls of an Executor. `missing` are the tags whose memory is gone."""

    def __init__(self, engine: Any, jobs: Jobs) -> None:
        self.engine, self.worker, self.jobs = engine, engine.worker, jobs
        self.missing: set[str] = set()

    def fetch_model(self, on_progress: OnDownload) -> None: ...

    def load_model(self, on_progress: Callable[[float], None]) -> ModelDescription:
        return ModelDescription(max_model_len=MAX_MODEL_LEN, vocab_size=VOCAB_SIZE, dtype="float32", kv_block_bytes=1)

    def profile(self) -> int:
        return 0

    def initialize_kv_cache(self, num_blocks: int) -> None:
        assert num_blocks == len(self.worker.slots)

    def execute_model(self, scheduler_output: SchedulerOutput) -> Future[ModelRunnerOutput | None]:
        num_tokens = scheduler_output.total_num_scheduled_tokens
        assert not (num_tokens and self.missing), "a forward without memory"
        self.engine.executor.on_forward(scheduler_output)

        def forward() -> ModelRunnerOutput | None:
            self.worker.forward(scheduler_output)
            return None if num_tokens else ModelRunnerOutput()

        return self.jobs.submit(forward)

    def sample_tokens(self, grammar_output: Any) -> Future[ModelRunnerOutput]:
        return self.jobs.submit(lambda: self.worker.sample(grammar_output))

    def sleep(self, level: int) -> None:
        assert not self.missing
        assert not self.engine.state.running, "a running request's blocks went with the memory"
        self.missing = set(MEMORY_TAGS)
        self.jobs.finish()
        self.worker.poison(range(len(self.worker.slots)))

    def wake_up(self, tags: Collection[str]) -> None:
        self.missing -= set(tags)


class CoreStepping:
    """EngineCore's step as the engine of the scheduler's tests takes it."""

    def __init__(self, core: EngineCore, client_of: Callable[[str], int]) -> None:
        self.core, self.client_of = core, client_of

    @property
    def num_in_flight(self) -> int:
        return len(self.core.scheduler.steps_under_way) or int(self.core.has_work())  # a step of zero tokens is not among them

    def step(self) -> StepUpdate:
        result = self.core.step()
        outputs = {index: message.outputs for index, message in result.outputs.items()}
        assert all(self.client_of(output.request_id) == index for index, of_one in outputs.items() for output in of_one)
        return StepUpdate(outputs, result.executed)


@dataclass
class StripedGrammar:
    """Allows two of three tokens, by turns, and ends after `length`. It is ready when it has been asked for that `num_questions` times more."""

    length: int
    num_accepted: int = field(default=0, repr=False)
    num_questions: int = field(default=0, repr=False)

    def is_ready(self) -> bool:
        self.num_questions -= 1
        return self.num_questions < 0

    def bitmask(self) -> bytes:
        return sum(1 << token_id for token_id in range(VOCAB_SIZE) if token_id % 3 != self.num_accepted % 3).to_bytes(4, "little")

    def accept(self, token_ids: Sequence[int]) -> bool:
        for token_id in token_ids:
            if token_id % 3 == self.num_accepted % 3:
                return False
            self.num_accepted += 1
        return True

    def is_terminated(self) -> bool:
        return self.num_accepted >= self.length


@dataclass
class Asked:
    """One request of a client. Its `grammar` is given by its length; 0 cannot be compiled."""

    prompt: list[int]
    fields: dict[str, Any]
    client_index: int
    number: int


class WholeEngine:
    """Made of the doubles of the scheduler's tests. Every operation leaves an engine in which all agrees; `settle` ends what is left, and compares each
    request with what it gives alone."""

    def __init__(self, doubles: Any, num_blocks: int, *, late: bool, **settings: Any) -> None:
        self.doubles = doubles
        self.engine = doubles.engine_of(num_blocks, MAX_MODEL_LEN, **settings)
        self.executor = CoreExecutor(self.engine, Jobs(late=late))
        self.core = EngineCore(
            doubles.config_of(num_blocks_override=num_blocks, max_model_len=MAX_MODEL_LEN, **settings), self.executor, reporter=self, grammars=self
        )
        self.engine.scheduler = self.core.scheduler
        self.engine.stepping = CoreStepping(self.core, lambda request_id: self.asked[request_id].client_index)
        self.engine.worker = LateWorker(self.engine.worker, self.executor.jobs)
        self.asked: dict[str, Asked] = {}
        self.past: list[tuple[Asked, Any, bool]] = []
        self.futures: list[Future[None]] = []
        self.phase, self.client_index, self.num_added = EnginePhase.READY, 0, 0
        self.num_lives = Counter[str]()
        self.first_admitted: list[int] = []
        self.eagerly_aborted = False

    def report_phase(self, phase: EnginePhase, progress: float) -> None:
        self.phase = phase

    def compile(self, request: EngineCoreRequest, when_compiled: Callable[[], None]) -> StripedGrammar | None:
        length = self.asked[request.request_id].fields.get("grammar")
        if length == 0:
            raise ParameterError("the grammar allows nothing", "response_format")
        return length and StripedGrammar(length, num_questions=self.num_added % 3)

    @property
    def live_ids(self) -> list[str]:
        return list(self.engine.state.requests)

    @property
    def ended_ids(self) -> list[str]:
        """Those that may come again: nobody waits for anything of theirs."""
        if self.eagerly_aborted:
            return []
        live, aborted, results = self.engine.state.requests, self.engine.aborted, self.engine.results
        return [name for name in self.asked if name not in live and (name in aborted or results[name].finish_reason is not None)]

    def add(self, prompt: list[int], fields: dict[str, Any], priority: int, request_id: str | None = None) -> None:
        """A new request, or one with the id of one that has ended."""
        name = request_id or f"r{self.num_added:04}"
        if name in self.asked:
            self._archive(name)
            self.num_lives[name] += 1
        self.asked[name] = Asked(prompt, fields, self.client_index, self.num_added)
        self.num_added += 1
        wire = self._wire(name, priority)
        try:
            request = self.core.preprocess(wire)
        except ParameterError:
            del self.asked[name]
            return
        assert self.core.add_request(request) == {}
        self.engine.track(request)

    def add_again(self, name: str) -> None:
        """With the id of a live request: the newcomer alone is told."""
        state = self.engine.state
        before = state.requests[name], len(state.requests), len(state.waiting), len(state.running)
        ((client_index, message),) = self.core.add_request(self.core.preprocess(self._wire(name, 0))).items()
        (output,) = message.outputs
        assert (output.request_id, output.finish_reason, client_index) == (name, FinishReason.ERROR, self.asked[name].client_index)
        assert before == (state.requests[name], len(state.requests), len(state.waiting), len(state.running))

    def step(self, abort_meanwhile: Collection[str] = ()) -> None:
        """One turn of the core's loop: nothing where there is no work. The aborts come from another thread while the step is computed."""
        self.core.control.fire_if_idle()
        if not self.core.has_work():
            return
        self.abort_eagerly(abort_meanwhile)
        eagerly_aborted, state = self.eagerly_aborted, self.engine.state
        before = {request.request_id: self.engine.table(request.request_id) for request in state.running}
        paused = state.pause_state
        scheduler_output = self.engine.step()
        assert paused is not PauseState.PAUSED_ALL or not scheduler_output.total_num_scheduled_tokens
        if paused is PauseState.PAUSED_NEW:
            admitted = [state.requests[new.request_id] for new in scheduler_output.new_requests if new.request_id in state.requests]
            assert all(request.num_preemptions for request in admitted)
        if paused is PauseState.UNPAUSED and not eagerly_aborted:
            self.doubles.checks.step(self.engine, before, scheduler_output)
        check_order(self, scheduler_output)
        self.eagerly_aborted = eagerly_aborted and self.engine.stepping.num_in_flight > 0
        self.check()

    def abort(self, names: Collection[str]) -> None:
        self.engine.aborted |= set(names) & set(self.live_ids)
        self.core.abort_requests(names)
        self.check()

    def abort_eagerly(self, names: Collection[str]) -> None:
        if names:
            self.engine.aborted |= set(names) & set(self.live_ids)
            self.core.abort_eagerly(list(names))
            self.eagerly_aborted = True

    def reset(self, *, force: bool) -> None:
        in_use = bool(self.engine.state.kv_cache_manager.block_tables)
        assert self.core.control.reset_prefix_cache(force) is (force or not in_use)
        assert (in_use and not force) or not self.engine.pool.cached_blocks
        self.check()

    def pause(self, mode: PauseMode, *, clear_cache: bool) -> None:
        if mode is PauseMode.ABORT:
            self.engine.aborted -= set(self.live_ids)  # they are told, also where an eager abort has yet to take effect
        self.futures.append(self.core.control.pause(mode, clear_cache))
        self.check()

    def resume(self) -> None:
        if not self.core.control.is_sleeping():
            self.core.control.resume()
            self.check()

    def sleep(self, level: SleepLevel, mode: PauseMode) -> None:
        if mode is PauseMode.ABORT:
            self.engine.aborted -= set(self.live_ids)  # they are told, also where an eager abort has yet to take effect
        self.futures.append(self.core.control.sleep(level, mode))
        self.check()

    def wake_up(self, tags: list[SleepTag] | None) -> None:
        self.core.control.wake_up(tags)
        self.check()

    def lose_client(self) -> None:
        """The client is gone, and another one comes: the requests of the first end, and its pause."""
        lost = set(self.live_ids)
        self.core.control.client_gone()
        told = {output.request_id for message in self.core.abort_all_requests().values() for output in message.outputs}
        assert self.live_ids == []
        assert self.core.control.is_paused() == self.core.control.is_sleeping()
        assert told >= lost
        self.engine.aborted |= told
        self.client_index = (self.client_index + 1) % 3
        self.check()

    def check(self) -> None:
        """What holds after every operation."""
        self.engine.remember_prefixes()
        if not self.core.has_work():
            self.executor.jobs.finish()
        if not len(self.executor.jobs):
            self.doubles.checks.blocks(self.engine)
        self.doubles.checks.requests(self.engine)
        sleeping = self.core.control.is_sleeping()
        assert sleeping == (self.phase is EnginePhase.SLEEPING)
        assert not self.executor.missing or (sleeping and not self.engine.state.running)
        state = self.engine.state
        assert state.constrained.keys() <= state.requests.keys()
        has_run = [request.num_preemptions > 0 for request in state.waiting]
        assert state.limits.priority_scheduling or has_run == sorted(has_run, reverse=True), "a new request overtook a preempted one"
        has_paused = state.pause_state is PauseState.PAUSED_NEW and all(future.done() for future in self.futures)
        assert not (has_paused and (state.running or state.waiting.first_preempted())), "a pause that waits was over too soon"

    def settle(self) -> None:
        """Everybody may run and nobody is left: each request has had its own tokens, each pause its answer, and nothing is in use."""
        self.wake_up(None)
        self.resume()
        for _ in range(200 * (1 + len(self.asked))):
            if not self.core.has_work():
                break
            self.step()
        self.step()
        assert not self.core.has_work()
        assert all(future.done() for future in self.futures)
        for name in self.num_lives:
            assert 1 <= self.engine.reported.pop(name) <= 1 + self.num_lives[name], "an end was reported twice, or never"
            if name in self.asked:
                self._archive(name)
        self.doubles.checks.idle(self.engine)
        assert self.engine.state.constrained == {}
        for name in tuple(self.asked):
            self._archive(name)
        for asked, result, aborted in self.past:
            check_result(self.doubles.reference_output, asked, result, aborted=aborted)

    def _archive(self, name: str) -> None:
        """What comes of this id from now on belongs to another request."""
        self.past.append((self.asked.pop(name), self.engine.results.pop(name), name in self.engine.aborted))
        self.engine.aborted.discard(name)

    def _wire(self, name: str, priority: int) -> EngineCoreRequest:
        asked = self.asked[name]
        fields = {key: value for key, value in asked.fields.items() if key != "grammar"}
        request = self.doubles.request_of(name, asked.prompt, priority=priority, arrival_time=float(self.num_added), client_index=self.client_index, **fields)
        wire: EngineCoreRequest = request.wire
        return wire


def check_order(whole: WholeEngine, scheduler_output: SchedulerOutput) -> None:
    state = whole.engine.state
    new_ids = [new.request_id for new in scheduler_output.new_requests]
    if state.limits.priority_scheduling:
        admitted = [state.requests[name].wire.priority for name in new_ids if name in state.requests]
        waiting = [request.wire.priority for request in state.waiting]
        unpaused = state.pause_state is PauseState.UNPAUSED
        assert not (admitted and waiting and unpaused) or max(admitted) <= min(waiting), "a less urgent request overtook"
        return
    numbers = [whole.asked[name].number for name in new_ids if "grammar" not in whole.asked[name].fields]
    whole.first_admitted += [number for number in numbers if number not in whole.first_admitted]
    assert whole.first_admitted == sorted(whole.first_admitted), "a later request overtook"


def check_result(reference_output: Callable[..., Any], asked: Asked, result: Any, *, aborted: bool) -> None:
    fields = dict(asked.fields)
    fields |= {"grammar": StripedGrammar(fields["grammar"])} if "grammar" in fields else {}
    expected = reference_output(asked.prompt, MAX_MODEL_LEN, **fields)
    if aborted or result.finish_reason is FinishReason.ABORT:
        assert aborted == (result.finish_reason is None)
        assert result.token_ids == expected.token_ids[: len(result.token_ids)]
        return
    assert (result.token_ids, result.finish_reason) == (expected.token_ids, expected.finish_reason)
    logprobs, expected_logprobs = ([output.new_logprobs for output in of_one.outputs] for of_one in (result, expected))
    assert logprobs == expected_logprobs
    assert [output.finish_reason is not None for output in result.outputs] == [False] * (len(result.outputs) - 1) + [True]


@pytest.fixture(scope="session")
def whole_engine(
    engine_of: Callable[..., Any], config_of: Callable[..., Any], request_of: Callable[..., Any], checks: Any, reference_output: Callable[..., Any]
) -> Callable[..., WholeEngine]:
    doubles = SimpleNamespace(engine_of=engine_of, config_of=config_of, request_of=request_of, checks=checks, reference_output=reference_output)

    def make(num_blocks: int = 64, *, late: bool = False, **settings: Any) -> WholeEngine:
        return WholeEngine(doubles, num_blocks, late=late, **settings)

    return make
