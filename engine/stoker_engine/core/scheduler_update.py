"""What a step's result does to one request: tokens appended, its end found, its output built."""

from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.request import Request, RequestStatus
from stoker_engine.core.stop_check import check_stop
from stoker_engine.protocol import EngineCoreOutput, LogprobsLists


def update_request(request: Request, output: ModelRunnerOutput) -> EngineCoreOutput:
    """For a request that the step sampled a token of. At its end, `request.status` says which."""
    request_id = request.request_id
    token_ids = output.sampled_token_ids.get(request_id)
    if not token_ids:
        return fail_request(request, output.failures.get(request_id, "the worker returned no token"))
    is_first = request.num_tokens == request.sequence.num_prompt_tokens
    token_ids, ended = _append(request, token_ids)
    if request.grammar is not None:
        if not request.grammar.accept(token_ids):
            return fail_request(request, f"the grammar does not allow the tokens {token_ids}")
        if ended is None and request.grammar.is_terminated():
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


def fail_request(request: Request, message: str) -> EngineCoreOutput:
    """Ends this request alone."""
    request.status = RequestStatus.FINISHED_ERROR
    return EngineCoreOutput(
        request_id=request.request_id,
        new_token_ids=[],
        finish_reason=request.status.finish_reason,
        events=request.take_events(),
        failure_message=message,
    )


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
