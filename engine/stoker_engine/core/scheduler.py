"""Scheduler: who runs in the next step, how many tokens of each, and what the step's result means."""

from collections import deque
from collections.abc import Iterable

from stoker_engine.config import EngineConfig
from stoker_engine.core.kv_cache_manager import KVCacheManager
from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.request import DuplicateRequestError, Request, RequestStatus
from stoker_engine.core.request_queue import FCFSRequestQueue, PriorityRequestQueue
from stoker_engine.core.scheduler_output import SchedulerOutput
from stoker_engine.core.scheduler_passes import preempt_all, schedule_running, schedule_waiting
from stoker_engine.core.scheduler_settings import check_scheduler_settings
from stoker_engine.core.scheduler_state import PauseState, SchedulerLimits, SchedulerState
from stoker_engine.core.scheduler_update import OutputLists, fail_request, find_obstacle, take_result
from stoker_engine.core.step_plan import StepPlan
from stoker_engine.core.structured_output import queue_compiled, queue_new
from stoker_engine.finish_reason import FinishReason
from stoker_engine.protocol import EngineCoreEventType, EngineCoreOutput
from stoker_engine.stats import SchedulerStats


class Scheduler:
    """One step is `schedule`, the model's forward, `update_from_output`; requests come and go in between, and so may further steps. Belongs to one thread.

    `num_blocks` counts the null block. Raises ConfigError where settings contradict each other.
    """

    def __init__(self, config: EngineConfig, *, max_model_len: int, num_blocks: int) -> None:
        check_scheduler_settings(config, max_model_len)
        kv_cache_manager = KVCacheManager(num_blocks, config.block_size)
        priority_scheduling = config.scheduling_policy == "priority"
        self.state = SchedulerState(
            limits=SchedulerLimits(
                max_model_len=max_model_len,
                max_num_tokens=min(max_model_len, kv_cache_manager.num_usable_tokens),
                max_num_seqs=config.max_num_seqs,
                max_num_batched_tokens=config.max_num_batched_tokens,
                enable_chunked_prefill=config.enable_chunked_prefill,
                priority_scheduling=priority_scheduling,
                async_scheduling=config.async_scheduling,
                num_watermark_blocks=int(config.watermark * num_blocks),
            ),
            kv_cache_manager=kv_cache_manager,
            waiting=PriorityRequestQueue() if priority_scheduling else FCFSRequestQueue(),
        )
        self.steps_under_way: deque[StepPlan] = deque()
        self._finished_request_ids: dict[str, None] = {}
        self._preempted_request_ids: list[str] = []
        self._answers: OutputLists = {}

    @property
    def num_unfinished_requests(self) -> int:
        return len(self.state.requests)

    @property
    def pause_state(self) -> PauseState:
        return self.state.pause_state

    @pause_state.setter
    def pause_state(self, pause_state: PauseState) -> None:
        self.state.pause_state = pause_state

    def has_requests(self) -> bool:
        """Whether there is a reason for a step: a request that may run, or news."""
        return self._has_news() or self._has_runnable_requests()

    def add_request(self, request: Request) -> None:
        """Queues a request. One that could never run ends with the next `update_from_output`. Raises DuplicateRequestError for a live id."""
        if request.request_id in self.state.requests:
            raise DuplicateRequestError(f"a request with the id {request.request_id} is running already")
        request.record_event(EngineCoreEventType.QUEUED)
        problem = find_obstacle(self.state.limits, request)
        if problem is not None:
            self._answer(request.client_index, fail_request(request, problem))
            return
        request.max_num_tokens = min(request.max_num_tokens, self.state.limits.max_num_tokens)
        self.state.requests[request.request_id] = request
        answer = queue_new(self.state, request)
        if answer is not None:
            self._answer(request.client_index, answer)
            self._let_go([request])

    def schedule(self) -> SchedulerOutput:
        """Decides the next step; its tokens count as computed from now on. Where anything was preempted, nothing is admitted."""
        state = self.state
        if state.awaiting_grammar:
            for request, answer in queue_compiled(state):
                self._answer(request.client_index, answer)
                self._let_go([request])
        plan = StepPlan(state.limits.max_num_batched_tokens, self._finished_request_ids, self._preempted_request_ids)
        self._finished_request_ids, self._preempted_request_ids = {}, []
        if state.pause_state is not PauseState.PAUSED_ALL:
            schedule_running(state, plan)
            if not plan.preempted_request_ids:
                schedule_waiting(state, plan)
        scheduler_output = plan.build()
        if plan.num_scheduled_tokens:
            self.steps_under_way.append(plan)
        state.counters.num_steps += scheduler_output.total_num_scheduled_tokens > 0
        return scheduler_output

    def update_from_output(self, scheduler_output: SchedulerOutput, output: ModelRunnerOutput) -> OutputLists:
        """Takes a step's result, in the order of the steps. Returns what to tell each client, by its index; requests that ended meanwhile are passed over."""
        self.state.counters.num_batched_tokens = scheduler_output.total_num_scheduled_tokens
        outputs, ended = take_result(self.state, self._take_plan(scheduler_output), output)
        for client_index, answers in self.take_answers().items():
            outputs.setdefault(client_index, []).extend(answers)
        self._let_go(ended)
        return outputs

    def finish_requests(self, request_ids: Iterable[str], status: RequestStatus) -> list[tuple[str, int]]:
        """Ends live requests with `status`, with no output of theirs. Returns (request id, client index) of those that lived; idempotent."""
        found = (self.state.requests.get(request_id) for request_id in dict.fromkeys(request_ids))
        ended = [request for request in found if request is not None]
        for request in ended:
            request.status = status
        self._let_go(ended)
        return [(request.request_id, request.client_index) for request in ended]

    def finish_all_requests(self, status: RequestStatus) -> list[tuple[str, int]]:
        """`finish_requests` for every live request."""
        return self.finish_requests(list(self.state.requests), status)

    def abort_all_requests(self) -> None:
        """Ends every live request; each client is told by the next step."""
        for request_id, client_index in self.finish_all_requests(RequestStatus.FINISHED_ABORTED):
            self._answer(client_index, EngineCoreOutput(request_id, [], FinishReason.ABORT))

    def take_answers(self) -> OutputLists:
        """What clients have still to be told of requests that ended outside a step; for where no step follows that would bring it."""
        answers, self._answers = self._answers, {}
        return answers

    def preempt_all_requests(self) -> None:
        """Between two steps: every running request gives its blocks back, and computes its tokens again when it is scheduled next."""
        self._preempted_request_ids += preempt_all(self.state)

    def reset_prefix_cache(self) -> bool:
        """Forgets every cached block; False, and nothing changed, while a block is in use."""
        return self.state.kv_cache_manager.reset_prefix_cache()

    def make_stats(self) -> SchedulerStats:
        counters = self.state.counters
        return SchedulerStats(
            num_running=len(self.state.running),
            num_waiting=len(self.state.waiting) + len(self.state.awaiting_grammar),
            kv_cache_usage=self.state.kv_cache_manager.usage,
            prefix_cache_queries=counters.prefix_cache_queries,
            prefix_cache_hits=counters.prefix_cache_hits,
            num_preemptions=counters.num_preemptions,
            num_steps=counters.num_steps,
            num_batched_tokens=counters.num_batched_tokens,
            num_nan_logits=counters.num_nan_logits,
            num_aborted=counters.num_aborted,
            num_deferred=len(self.state.awaiting_grammar),
        )

    def _has_news(self) -> bool:
        """There is an end that the worker or a client has not been told."""
        return bool(self._finished_request_ids or self._preempted_request_ids or self._answers)

    def _has_runnable_requests(self) -> bool:
        match self.state.pause_state:
            case PauseState.UNPAUSED:
                return bool(self.state.requests)
            case PauseState.PAUSED_NEW:
                return bool(self.state.running) or self.state.waiting.first_preempted() is not None
            case PauseState.PAUSED_ALL:
                return False

    def _take_plan(self, scheduler_output: SchedulerOutput) -> StepPlan:
        """The oldest step under way. A step of zero tokens is not among them: nothing comes of it."""
        if not scheduler_output.num_scheduled_tokens:
            return StepPlan(0, {}, [])
        plan = self.steps_under_way.popleft()
        if plan.num_scheduled_tokens is not scheduler_output.num_scheduled_tokens:
            raise RuntimeError("results must be taken in the order of their steps")
        return plan

    def _let_go(self, ended: list[Request]) -> None:
        """Ended requests leave every table; the worker is told in the next step.

        Steps under way may still use their blocks. The worker computes one step after the other, so whoever gets them next writes to them only later.
        """
        if not ended:
            return
        state, manager = self.state, self.state.kv_cache_manager
        state.running = [request for request in state.running if request.status is RequestStatus.RUNNING]
        queued = [request for request in ended if request.request_id not in manager.block_tables]
        if queued:
            state.waiting.remove(queued)
        for request in ended:
            if state.limits.async_scheduling and request.status is not RequestStatus.FINISHED_ERROR:
                manager.cache_known_blocks(request)
            manager.free(request)
            self.state.counters.num_aborted += request.status is RequestStatus.FINISHED_ABORTED
            del state.requests[request.request_id]
            state.constrained.pop(request.request_id, None)
            state.awaiting_grammar.pop(request.request_id, None)
            self._finished_request_ids[request.request_id] = None

    def _answer(self, client_index: int, output: EngineCoreOutput) -> None:
        self._answers.setdefault(client_index, []).append(output)
