"""The engine's errors in the API's words."""

from stoker_engine.errors import (
    ContextLengthError,
    EngineBusyError,
    EngineDeadError,
    EngineError,
    EngineNotReadyError,
    ParameterError,
    QueueFullError,
    RequestTimeoutError,
)
from stoker_gateway.openai.errors import ApiError, internal_error, queue_full, timed_out, unavailable

NOT_READY_CODE = "engine_not_ready"


def to_api_error(error: EngineError) -> ApiError:
    if isinstance(error, ContextLengthError):
        return ApiError(str(error), param=error.parameter, code="context_length_exceeded")
    if isinstance(error, ParameterError):
        return ApiError(str(error), param=error.parameter)
    if isinstance(error, QueueFullError):
        return queue_full(str(error))
    if isinstance(error, EngineNotReadyError):
        return unavailable(str(error), NOT_READY_CODE)
    if isinstance(error, EngineDeadError):
        return unavailable(str(error), "engine_dead")
    if isinstance(error, RequestTimeoutError):
        return timed_out(str(error))
    if isinstance(error, EngineBusyError):
        return unavailable(str(error), "engine_busy")
    return internal_error(str(error))
