"""The gateway's own errors in the API's words."""

from stoker_gateway.openai.errors import ApiError, unavailable

BODIES_FILL_MEMORY = "body_memory_full"


def not_synced() -> ApiError:
    return unavailable("The gateway does not know its models yet; try again.", "gateway_not_ready")


def no_replicas(model: str) -> ApiError:
    return unavailable(f"No replica of the model {model!r} is ready; try again later.", "no_replicas")


def name_is_new(model: str) -> ApiError:
    return unavailable(f"No replica that was asked knows the model {model!r} yet; try again later.", "no_replicas")


def bodies_fill_memory() -> ApiError:
    return unavailable("The gateway holds as many bytes of requests as it may; try again.", BODIES_FILL_MEMORY)


def response_not_found(response_id: str) -> ApiError:
    return ApiError(f"Response with id {response_id[:100]!r} not found.", param="response_id", status=404, code="response_not_found")


def keeper_unreachable(response: str) -> ApiError:
    return unavailable(f"A replica that may have the response {response} could not be asked; try again.", "replicas_unreachable")


def replicas_unreachable(model: str) -> ApiError:
    return unavailable(f"No replica of the model {model!r} could be reached; try again.", "replicas_unreachable")


def no_connection_left() -> ApiError:
    return unavailable("The gateway can open no more connections to replicas; try again.", "gateway_full")


def replica_failed(reason: str) -> ApiError:
    """502: a replica may have begun with the request, which is not sent to another one then."""
    return ApiError(f"The replica that had this request failed: {reason}.", status=502, error_type="server_error", code="replica_failed")


def replica_silent(seconds: float) -> ApiError:
    return ApiError(f"The replica that had this request sent nothing for {seconds:g} s.", status=504, error_type="server_error", code="replica_silent")


def stopping() -> ApiError:
    return unavailable("The gateway stopped before the answer was complete.", "gateway_stopping")
