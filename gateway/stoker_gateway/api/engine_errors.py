"""The engine's errors in the API's words."""

from stoker_engine.errors import ContextLengthError, EngineDeadError, EngineError, EngineNotReadyError, ParameterError
from stoker_gateway.openai.errors import ApiError, internal_error, unavailable


def to_api_error(error: EngineError) -> ApiError:
    if isinstance(error, ContextLengthError):
        return ApiError(str(error), param=error.parameter, code="context_length_exceeded")
    if isinstance(error, ParameterError):
        return ApiError(str(error), param=error.parameter)
    if isinstance(error, EngineNotReadyError):
        return unavailable(str(error), "engine_not_ready")
    if isinstance(error, EngineDeadError):
        return unavailable(str(error), "engine_dead")
    return internal_error(str(error))
