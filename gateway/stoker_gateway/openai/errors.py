"""Errors in the API's words: a status, headers and the body `{"error": {"message", "type", "param", "code"}}`, never more than 16 KiB."""

import msgspec

MAX_MESSAGE_CHARS = 2000
"""A character takes at most 6 bytes in JSON, so a body stays under 16 KiB."""
MAX_NAME_CHARS = 200
RETRY_AFTER_SECONDS = 1
DRAINING_CODE = "draining"


class ErrorObject(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct):
    error: ErrorObject


class ApiError(Exception):
    """What the client is told. `param` is the request field at fault; `headers` go on the HTTP response.

    ApiError (400 invalid_request_error unless said otherwise)
    ├── invalid_api_key         401, with WWW-Authenticate
    ├── model_not_found         404
    ├── route_not_found         404
    ├── method_not_allowed      405
    ├── body_too_slow           408, the connection is closed
    ├── conflict                409
    ├── body_too_large          413
    ├── too_many_values         413
    ├── unsupported_media_type  415
    ├── headers_too_large       431
    ├── internal_error          500
    ├── queue_full              429, with Retry-After
    ├── unavailable             503, with Retry-After
    └── timed_out               504
    """

    def __init__(
        self, message: str, *, param: str | None = None, status: int = 400, error_type: str = "invalid_request_error", code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = _shorten(message, MAX_MESSAGE_CHARS)
        self.param = None if param is None else _shorten(param, MAX_NAME_CHARS)
        self.status = status
        self.error_type = error_type
        self.code = code
        self.headers: dict[str, str] = {}

    def body(self) -> bytes:
        return msgspec.json.encode(ErrorBody(ErrorObject(self.message, self.error_type, self.param, self.code)))


def invalid_api_key(message: str) -> ApiError:
    error = ApiError(message, status=401, code="invalid_api_key")
    error.headers["WWW-Authenticate"] = "Bearer"
    return error


def foreign_origin(origin: str) -> ApiError:
    message = f"Web pages of {_shorten(origin, MAX_NAME_CHARS)!r} may not use this server; serve it with --cors-allow-origins to let them."
    return ApiError(message, status=403, code="origin_not_allowed")


def model_not_found(model: str) -> ApiError:
    return ApiError(f"The model {_shorten(model, MAX_NAME_CHARS)!r} does not exist.", param="model", status=404, code="model_not_found")


def route_not_found(method: str, path: str) -> ApiError:
    return ApiError(f"Unknown request URL: {method} {_shorten(path, MAX_NAME_CHARS)}.", status=404, code="unknown_url")


def method_not_allowed(method: str, path: str, allowed: str) -> ApiError:
    error = ApiError(f"Not allowed to {method} on {_shorten(path, MAX_NAME_CHARS)}.", status=405, code="method_not_supported")
    if allowed:
        error.headers["Allow"] = allowed
    return error


def conflict(message: str, code: str) -> ApiError:
    """409: not in the state that things are in now."""
    return ApiError(message, status=409, code=code)


def body_too_slow(seconds: float) -> ApiError:
    error = ApiError(f"Nothing more of the request body came for {seconds:g} s.", status=408, code="request_too_slow")
    error.headers["Connection"] = "close"
    return error


def body_too_large(max_body_bytes: int) -> ApiError:
    error = ApiError(f"The request body is larger than {max_body_bytes} bytes.", status=413, code="request_too_large")
    error.headers["Connection"] = "close"
    return error


def too_many_values(max_values: int) -> ApiError:
    message = f"The request body has too many values: it must have at most {max_values} commas, those of its texts included."
    return ApiError(message, status=413, code="request_too_large")


def nested_too_deeply(max_nesting: int) -> ApiError:
    return ApiError(f"The request body is nested too deeply: it must have at most {max_nesting} lists and objects within each other.", code="invalid_json")


def unsupported_media_type(content_type: str) -> ApiError:
    return ApiError(f"Content-Type must be application/json, got {_shorten(content_type, MAX_NAME_CHARS)!r}.", status=415, code="unsupported_media_type")


def internal_error(message: str) -> ApiError:
    return ApiError(message, status=500, error_type="server_error", code="internal_error")


def malformed_request() -> ApiError:
    return ApiError(
        "This is no HTTP request that can be read in one way only: it needs one Host, at most one length, and headers as RFC 9112 has them.",
        code="invalid_http",
    )


def headers_too_large(max_bytes: int, max_headers: int) -> ApiError:
    return ApiError(f"The request's line and headers must have at most {max_bytes} bytes and {max_headers} headers.", status=431, code="headers_too_large")


def queue_full(message: str) -> ApiError:
    """429: this server has as much to do as it may have."""
    error = ApiError(message, status=429, error_type="rate_limit_error", code="queue_full")
    error.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return error


def unavailable(message: str, code: str) -> ApiError:
    """503: the same request may succeed a little later, here or on another replica."""
    error = ApiError(message, status=503, error_type="server_error", code=code)
    error.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return error


def timed_out(message: str) -> ApiError:
    """504: it would take as long the next time."""
    return ApiError(message, status=504, error_type="server_error", code="request_timeout")


def draining() -> ApiError:
    error = unavailable("The server is draining; try again, and another replica will answer.", DRAINING_CODE)
    error.headers["Connection"] = "close"
    return error


def _shorten(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"
