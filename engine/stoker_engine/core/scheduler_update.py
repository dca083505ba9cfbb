"""What a step's result does to its requests: tokens appended, ends found, outputs built."""

from stoker_engine.core.grammar import Grammar
from stoker_engine.core.model_runner_output import NOT_FINITE, ModelRunnerOutput
from stoker_engine.core.parameter_at_fault import parameter_at_fault
from stoker_engine.core.request import Request, RequestStatus
from stoker_engine.core.scheduler_state import SchedulerLimits, SchedulerState
from stoker_engine.core.step_plan import StepPlan
from stoker_engine.core.stop_check import check_stop
from stoker_engine.errors import EngineBusyError, EngineGenerateError, ParameterError
from stoker_engine.protocol import EngineCoreOutput, LogprobsLists

_LIVE = (RequestStatus.RUNNING, RequestStatus.PREEMPTED)
"""What a request of a step can be when the result comes, unless it has ended."""

_CUT = (None, RequestStatus.FINISHED_LENGTH_CAPPED)
"""What a complete output ends before, or with: where nothing may follow, nothing was cut off."""

OutputLists = dict[int, list[EngineCoreOutput]]
"""By client index."""


def take_result(state: SchedulerState, plan: StepPlan, output: ModelRunnerOutput) -> tuple[OutputLists, list[Request]]:
    """What to tell the clients of the step's requests, and those that ended by it. Requests that ended before are passed over."""
    outputs: OutputLists = {}
    ended: list[Request] = []
    running, preempted = RequestStatus.RUNNING, RequestStatus.PREEMPTED
    for request in plan.sampling:
        request.num_output_placeholders -= 1
        if request.status is not running and request.status is not preempted:
            continue
        engine_core_output = _update_request(request, output)
        outputs.setdefault(request.client_index, []).append(engine_core_output)
        if engine_core_output.finish_reason is not None:
            ended.append(request)
    if output.failures:
        _take_failures(state, plan, output.failures, outputs, ended)
    return outputs, ended


def find_obstacle(limits: SchedulerLimits, request: Request) -> str | None:
    """Why this request could never be admitted. Without this check it would wait for ever, and everybody behind it."""
    num_prompt_tokens = request.num_prompt_tokens
    if num_prompt_tokens >= limits.max_model_len:
        return f"the prompt has {num_prompt_tokens} tokens, prompt and output together may have {limits.max_model_len}"
    if num_prompt_tokens > limits.max_num_tokens:
        return f"the prompt has {num_prompt_tokens} tokens, the KV cache holds {limits.max_num_tokens}"
    return None


def _update_request(request: Request, output: ModelRunnerOutput) -> EngineCoreOutput:
    """For a request that the step sampled a token of. At its end, `request.status` says which."""
    request_id = request.request_id
    token_ids = output.sampled_token_ids.get(request_id)
    if not token_ids:
        failure = output.failures.get(request_id, "the worker returned no token")
        return fail_request(request, failure, parameter_at_fault(failure, request.wire.sampling_params))
    is_first = request.num_tokens == request.sequence.num_prompt_tokens
    token_ids, ended = _append(request, token_ids)
    if request.grammar is not None:
        refusal = _accept(request, request.grammar, token_ids)
        if refusal is not None:
            return refusal
        if ended in _CUT and request.grammar.is_terminated():
            ended = RequestStatus.FINISHED_STOPPED
    engine_core_output = EngineCoreOutput(request_id, token_ids)
    if ended is not None:
        request.status = ended
        engine_core_output.finish_reason = ended.finish_reason
        engine_core_output.stop_reason = request.stop_reason
    if output.logprobs:
        engine_core_output.new_logprobs = _first_rows(output.logprobs.get(request_id), len(token_ids))
    if is_first:
        engine_core_output.prefill_stats = request.take_prefill_stats()
        engine_core_output.trace_headers = request.wire.trace_headers
        # A preempted request computes its prompt again; its log probabilities are told once.
        engine_core_output.new_prompt_logprobs = output.prompt_logprobs.get(request_id)
    if request.events:
        engine_core_output.events = request.take_events()
    return engine_core_output


def _accept(request: Request, grammar: Grammar, token_ids: list[int]) -> EngineCoreOutput | None:
    """What to tell the client where the grammar ends the request by a failure."""
    try:
        if not grammar.accept(token_ids):
            return fail_request(request, f"the grammar does not allow the tokens {token_ids}")
    except (ParameterError, EngineGenerateError) as error:
        return fail_by(request, error)
    return None


def fail_by(request: Request, error: ParameterError | EngineGenerateError) -> EngineCoreOutput:
    """Ends this request alone, with what the error of its grammar says."""
    if isinstance(error, ParameterError):
        return fail_request(request, str(error), error.parameter or "structured_outputs")
    output = fail_request(request, str(error))
    output.may_be_retried = isinstance(error, EngineBusyError)
    return output


def fail_request(request: Request, message: str, parameter: str | None = None) -> EngineCoreOutput:
    """Ends this request alone. `parameter` is the one at fault, None where the request is not."""
    request.status = RequestStatus.FINISHED_ERROR
    return EngineCoreOutput(
        request_id=request.request_id,
        new_token_ids=[],
        finish_reason=request.status.finish_reason,
        events=request.take_events(),
        failure_message=message,
        failed_parameter=parameter,
    )


def _take_failures(state: SchedulerState, plan: StepPlan, failures: dict[str, str], outputs: OutputLists, ended: list[Request]) -> None:
    """Of the step's requests; those that sample have been told. Where a request ended before, its blocks are no better for it."""
    for request in plan.prefilling:
        if request.request_id in failures and request.status in _LIVE:
            outputs.setdefault(request.client_index, []).append(fail_request(request, failures[request.request_id]))
            ended.append(request)
    for request in (*plan.sampling, *plan.prefilling):
        if request.request_id in failures:
            state.kv_cache_manager.forget(request)
    state.counters.num_nan_logits += sum(failures.get(request.request_id) == NOT_FINITE for request in ended)


def _append(request: Request, token_ids: list[int]) -> tuple[list[int], RequestStatus | None]:
    """Appends up to the token that ends the request; returns what was kept."""
    for num_kept, token_id in enumerate(token_ids, start=1):
        request.append_token(token_id)
        ended = check_stop(request)
        if ended is not None:
            return token_ids[:num_kept], ended
    return token_ids, None


def _first_rows(logprobs: LogprobsLists | None, num_rows: int) -> LogprobsLists | None:
    if logprobs is None or len(logprobs.token_ids) <= num_rows:
        return logprobs
    return LogprobsLists(logprobs.token_ids[:num_rows], logprobs.logprobs[:num_rows], logprobs.ranks[:num_rows])
