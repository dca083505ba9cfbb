"""EngineCore: scheduler, KV cache and executor put together; `step()` is one turn of schedule → execute → update."""

import logging
import queue
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from stoker_engine.config import EngineConfig, max_batches_in_flight
from stoker_engine.core.batch_queue import BatchQueue
from stoker_engine.core.block_hash import BlockHasher
from stoker_engine.core.control import CoreControl
from stoker_engine.core.grammar import GrammarSource
from stoker_engine.core.kv_cache_config import size_kv_cache
from stoker_engine.core.request import DuplicateRequestError, Request, RequestStatus
from stoker_engine.core.request_checks import check_request
from stoker_engine.core.scheduler import Scheduler
from stoker_engine.core.scheduler_update import OutputLists
from stoker_engine.core.stepping import PlainStepping, Stepping
from stoker_engine.executor.base import Executor, ModelDescription
from stoker_engine.finish_reason import FinishReason
from stoker_engine.protocol import EngineCoreOutput, EngineCoreOutputs, EngineCoreReadyResponse, EngineCoreRequest, EnginePhase, ModelDownload
from stoker_engine.stats import SchedulerStats
from stoker_engine.version import __version__

logger = logging.getLogger(__name__)

YIELD_SECONDS = 0.001
"""A loop that has requests but nothing to compute lets other threads run."""

OutputsByClient = dict[int, EngineCoreOutputs]


class PhaseReporter(Protocol):
    """Told what the engine is doing while it starts."""

    def report_phase(self, phase: EnginePhase, progress: float, download: ModelDownload | None = None, message: str = "") -> None:
        """`download` comes with DOWNLOADING alone; `message` is what the engine waits for."""


@dataclass(slots=True, frozen=True)
class StepResult:
    """`executed` is False where nothing was computed: no request had a token to compute."""

    outputs: OutputsByClient
    executed: bool


class EngineCore:
    """Used directly by an in-process client, and as the base of EngineCoreProc. One thread calls everything but `preprocess` and `abort_eagerly`."""

    def __init__(self, config: EngineConfig, executor: Executor, reporter: PhaseReporter, grammars: GrammarSource | None = None) -> None:
        self.executor = executor
        executor.fetch_model(lambda download, message: reporter.report_phase(EnginePhase.DOWNLOADING, download.share, download, message))
        reporter.report_phase(EnginePhase.LOADING, 0.0)
        model = executor.load_model(lambda share: reporter.report_phase(EnginePhase.LOADING, share))
        self.config = config = _suited_to(config, model)
        reporter.report_phase(EnginePhase.PROFILING, 0.0)
        kv_cache = size_kv_cache(config, model, executor.profile())
        reporter.report_phase(EnginePhase.WARMING_UP, 0.0)
        executor.initialize_kv_cache(kv_cache.num_blocks)
        self.scheduler = Scheduler(config, max_model_len=kv_cache.max_model_len, num_blocks=kv_cache.num_blocks)
        self.control = CoreControl(
            self.scheduler,
            executor,
            config.profile_dir,
            has_work=self.has_work,
            report=lambda phase: reporter.report_phase(phase, 1.0),
        )
        self._hasher = BlockHasher(config.block_size) if config.enable_prefix_caching else None
        self._grammars = grammars or model.grammars
        self._told_stats: SchedulerStats | None = None
        self._eager_aborts: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._stepping = choose_stepping(config, self.scheduler, executor, self._take_eager_aborts)
        self.ready_response = EngineCoreReadyResponse(
            max_model_len=kv_cache.max_model_len,
            max_num_seqs=config.max_num_seqs,
            max_logprobs=config.max_logprobs,
            num_blocks=kv_cache.num_blocks,
            block_size=config.block_size,
            vocab_size=model.vocab_size,
            dtype=model.dtype,
            version=__version__,
            priority_scheduling=config.scheduling_policy == "priority",
            prefix_caching=config.enable_prefix_caching,
        )

    def preprocess(self, request: EngineCoreRequest) -> Request:
        """The scheduler's view of a request, its block hashes computed and its grammar being compiled; safe on another thread."""
        check_request(request, self.ready_response)
        preprocessed = Request.from_engine_core_request(request, self._hasher)
        preprocessed.grammar = self._grammars.compile(request, self.grammar_compiled)
        return preprocessed

    def grammar_compiled(self) -> None:
        """From any thread: what some request has waited for is there. Nobody is asleep here who would have to be told."""

    def add_request(self, request: Request) -> OutputsByClient:
        """Queues a request. A live request of the same id keeps running; the newcomer alone fails."""
        try:
            self.scheduler.add_request(request)
        except DuplicateRequestError as error:
            output = EngineCoreOutput(request.request_id, [], FinishReason.ERROR, failure_message=str(error))
            return self._stamp({request.client_index: [output]})
        return {}

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """Ends requests that their client no longer wants: no output. Idempotent; unknown and finished ids change nothing.

        With them go those of `abort_eagerly`, which without a step would pile up.
        """
        self._take_eager_aborts()
        self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)

    def abort_all_requests(self) -> OutputsByClient:
        """Ends every request; each client is told, also of those that had ended and waited for a step to say so."""
        self.scheduler.abort_all_requests()
        answers = self.scheduler.take_answers()
        return self._stamp(answers) if answers else {}

    def abort_eagerly(self, request_ids: list[str]) -> None:
        """From any thread: the abort takes effect in the step that is running, before its result is used."""
        self._eager_aborts.put(request_ids)

    def has_work(self) -> bool:
        """Whether there is a reason for a step: something to schedule, or a result to take."""
        return self._stepping.num_in_flight > 0 or self.scheduler.has_requests()

    def step(self) -> StepResult:
        """Goes on by one step: schedules, executes and updates, or one of these where several steps are under way. An exception is fatal: it is logged
        with the step that caused it, and raised."""
        if not self.has_work():
            self.control.fire_if_idle()
            return StepResult({}, executed=False)
        update = self._stepping.step()
        if update.outputs is None or not (update.outputs or update.executed or self.scheduler.make_stats() != self._told_stats):
            return StepResult({}, update.executed)
        return StepResult(self._stamp(update.outputs), update.executed)

    def _take_eager_aborts(self) -> None:
        while True:
            try:
                request_ids = self._eager_aborts.get_nowait()
            except queue.Empty:
                return
            self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)

    def _stamp(self, outputs: OutputLists) -> OutputsByClient:
        """One message per client with outputs; the statistics go with the first one, or to client 0 where there is none."""
        messages = {client_index: EngineCoreOutputs(outputs=of_client) for client_index, of_client in outputs.items()}
        first = messages[min(messages)] if messages else messages.setdefault(0, EngineCoreOutputs())
        first.scheduler_stats = self._told_stats = self.scheduler.make_stats()
        now = time.monotonic()
        for message in messages.values():
            message.timestamp = now
        return messages


def _suited_to(config: EngineConfig, model: ModelDescription) -> EngineConfig:
    """A model in which a token sees those after it computes whole prompts, each by itself."""
    if model.is_causal:
        return config
    logger.info("the model is not causal: prompts are neither split over steps nor cached")
    return msgspec.structs.replace(config, enable_chunked_prefill=False, enable_prefix_caching=False)


def choose_stepping(config: EngineConfig, scheduler: Scheduler, executor: Executor, take_aborts: Callable[[], None]) -> Stepping:
    """How the settings say that steps follow each other. `take_aborts` ends what was aborted while a step was computed."""
    max_batches = max_batches_in_flight(config)
    if max_batches > 1:
        return BatchQueue(scheduler, executor, take_aborts, max_batches)
    return PlainStepping(scheduler, executor, take_aborts)
