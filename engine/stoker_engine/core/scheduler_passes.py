"""The two passes of a step: running requests first, then waiting ones.

There are no phases: a request wants the tokens it has and has not computed, be they a prompt, a recomputed prefix or the one sampled last. With
asynchronous scheduling it also wants the one that a step under way is sampling: the worker will have it by then.
"""

from stoker_engine.core.request import Request, RequestStatus
from stoker_engine.core.scheduler_state import PauseState, SchedulerState
from stoker_engine.core.step_plan import StepPlan
from stoker_engine.protocol import EngineCoreEventType, PrefillStats


def schedule_running(state: SchedulerState, plan: StepPlan) -> None:
    """Goes on with each running request, in the order of admission; preempts where the KV cache has no room."""
    running = RequestStatus.RUNNING
    allocate_slots = state.kv_cache_manager.allocate_slots
    async_scheduling = state.limits.async_scheduling
    # Over a snapshot: a victim may stand anywhere in the list, and nobody may be passed over because it moved.
    for request in tuple(state.running):
        if plan.token_budget <= 0:
            break
        if request.status is not running:
            continue
        num_tokens = request.num_tokens
        num_placeholders = request.num_output_placeholders
        if num_placeholders:
            num_tokens += num_placeholders
            if not async_scheduling or num_tokens >= request.max_num_tokens:
                continue  # its next token is yet to come, or is its last
        num_new_tokens = num_tokens - request.num_computed_tokens
        if num_new_tokens > plan.token_budget:
            num_new_tokens = plan.token_budget
        new_block_ids = allocate_slots(request, num_new_tokens)
        if new_block_ids is None:
            new_block_ids = _allocate_by_preempting(state, plan, request, num_new_tokens)
        if new_block_ids is not None:
            plan.add_running(request, new_block_ids, num_new_tokens)


def schedule_waiting(state: SchedulerState, plan: StepPlan) -> None:
    """Admits from the head of the queue while there are seats, budget and blocks; strictly in order, so that nobody starves."""
    limits = state.limits
    while plan.token_budget > 0 and len(state.running) < limits.max_num_seqs:
        request = _next_waiting(state)
        if request is None or request.num_output_placeholders or request.request_id in plan.finished_request_ids:
            return  # the head waits for tokens of its own that steps under way sample, or for the worker to hear that its id is free again
        computed_blocks = state.kv_cache_manager.get_computed_blocks(request)
        num_cached_tokens = len(computed_blocks) * state.kv_cache_manager.block_size
        num_new_tokens = request.num_tokens - num_cached_tokens
        if num_new_tokens > plan.token_budget:
            if not limits.enable_chunked_prefill:
                return
            num_new_tokens = plan.token_budget
        num_kept_free = limits.num_watermark_blocks if state.running else 0
        block_ids = state.kv_cache_manager.admit(request, computed_blocks, num_new_tokens, num_kept_free)
        if block_ids is None:
            return
        _take(state, request)
        _start(state, request, num_cached_tokens)
        plan.add_admitted(request, block_ids, num_new_tokens)


def _next_waiting(state: SchedulerState) -> Request | None:
    """While no new requests are admitted, the preempted ones still are: they had begun."""
    if state.pause_state is PauseState.UNPAUSED:
        return state.waiting.peek() if len(state.waiting) else None
    return state.waiting.first_preempted()


def _take(state: SchedulerState, request: Request) -> None:
    if state.pause_state is PauseState.UNPAUSED:
        state.waiting.pop()
    else:
        state.waiting.remove([request])


def preempt_all(state: SchedulerState) -> list[str]:
    """Between two steps: every running request gives its blocks back and waits, in its order, before the others. Returns their ids."""
    preempted = state.running[::-1]
    state.running = []
    for request in preempted:
        state.kv_cache_manager.free(request)
        request.preempt()
        state.waiting.prepend(request)
    state.counters.num_preemptions += len(preempted)
    return [request.request_id for request in preempted]


def _start(state: SchedulerState, request: Request, num_cached_tokens: int) -> None:
    request.status = RequestStatus.RUNNING
    request.num_computed_tokens = num_cached_tokens
    request.record_event(EngineCoreEventType.SCHEDULED)
    state.running.append(request)
    if request.num_preemptions:
        return
    request.prefill_stats = PrefillStats(request.num_prompt_tokens, num_cached_tokens)
    if request.reads_prefix_cache:
        state.counters.prefix_cache_queries += request.num_prompt_tokens
        state.counters.prefix_cache_hits += num_cached_tokens


def _allocate_by_preempting(state: SchedulerState, plan: StepPlan, request: Request, num_new_tokens: int) -> list[int] | None:
    """Preempts until there is room. None where `request` itself had to go."""
    while True:
        victim = _choose_victim(state)
        _preempt(state, plan, victim)
        if victim is request:
            return None
        new_block_ids = state.kv_cache_manager.allocate_slots(request, num_new_tokens)
        if new_block_ids is not None:
            return new_block_ids


def _choose_victim(state: SchedulerState) -> Request:
    if not state.limits.priority_scheduling:
        return state.running[-1]
    return max(state.running, key=lambda request: (request.wire.priority, request.wire.arrival_time, request.request_id))


def _preempt(state: SchedulerState, plan: StepPlan, victim: Request) -> None:
    """Takes a running request's blocks; it waits to compute its tokens again.

    Steps under way may still use the blocks. The worker computes one step after the other, so whoever gets them now writes to them only later.
    """
    if plan.withdraw(victim):
        # Blocks that this step was to fill are cached already, and now nobody fills them.
        state.kv_cache_manager.uncache(victim, victim.num_computed_tokens)
    if state.limits.async_scheduling:
        state.kv_cache_manager.cache_known_blocks(victim)
    state.kv_cache_manager.free(victim)
    state.running.remove(victim)
    victim.preempt()
    state.waiting.prepend(victim)
    plan.preempted_request_ids.append(victim.request_id)
    state.counters.num_preemptions += 1
