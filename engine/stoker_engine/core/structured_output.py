"""Requests whose grammars are being compiled: they wait beside the queue, where they hold nobody up."""

from stoker_engine.core.request import Request, RequestStatus
from stoker_engine.core.scheduler_state import SchedulerState
from stoker_engine.core.scheduler_update import fail_by
from stoker_engine.errors import EngineGenerateError, ParameterError
from stoker_engine.protocol import EngineCoreOutput


def queue_new(state: SchedulerState, request: Request) -> EngineCoreOutput | None:
    """Lets a new request wait for its turn, or for its grammar first. Returns what to tell the client where that cannot be compiled."""
    if request.grammar is not None:
        state.constrained[request.request_id] = request
        request.status = RequestStatus.WAITING_FOR_GRAMMAR
        state.awaiting_grammar[request.request_id] = request
        return _queue_if_compiled(state, request)
    state.waiting.append(request)
    return None


def queue_compiled(state: SchedulerState) -> list[tuple[Request, EngineCoreOutput]]:
    """Queues those whose grammars are there by now. Returns those whose grammar cannot be compiled, and what to tell their clients."""
    answers = [(request, _queue_if_compiled(state, request)) for request in tuple(state.awaiting_grammar.values())]
    return [(request, answer) for request, answer in answers if answer is not None]


def count_computable(state: SchedulerState) -> int:
    """Requests that wait for no grammar: an engine that computes nothing of them hangs."""
    return len(state.requests) - len(state.awaiting_grammar)


def _queue_if_compiled(state: SchedulerState, request: Request) -> EngineCoreOutput | None:
    if request.grammar is None:
        raise RuntimeError(f"request {request.request_id} waits for a grammar and has none")
    try:
        if not request.grammar.is_ready():
            return None
    except (ParameterError, EngineGenerateError) as error:
        return fail_by(request, error)
    del state.awaiting_grammar[request.request_id]
    request.status = RequestStatus.WAITING
    state.waiting.append(request)
    return None
