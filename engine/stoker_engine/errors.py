"""Errors of the engine and its clients.

EngineError
├── ConfigError              bad configuration or input file: names the flag or path and the value (exit code 2)
├── ModelLoadError           the model cannot be loaded: names the file, tensor or setting (exit code 4); hub/errors.py has those of a download
├── StartupTimeoutError      the start took longer than startupTimeout (exit code 3)
├── ParameterError           a request's parameter is out of range: names it and its value (HTTP 400)
│   └── ContextLengthError   prompt and output do not fit the model's context (HTTP 400)
├── EngineGenerateError      this request failed, the engine lives on (HTTP 500)
│   ├── DuplicateRequestError   its id is running already (core/request.py)
│   └── EngineBusyError          by what others take of the engine: it may do better a little later (HTTP 503)
├── EngineNotReadyError      no engine is ready to take the request (HTTP 503)
├── QueueFullError           too much waits for its first token already (HTTP 429)
├── RequestTimeoutError      the request took longer than requestTimeout (HTTP 504)
├── EngineDeadError          the engine behind the request is gone (HTTP 503)
├── UnsupportedClientError   there is no client of this kind (a NotImplementedError)
└── SocketDirectoryError     the socket directory cannot be used (exit code 1)
"""

from typing import ClassVar


class EngineError(Exception):
    """Base of all errors in this package."""


class ConfigError(EngineError):
    """A setting or an input file is wrong. The message names it, its value and what is allowed."""


class ModelLoadError(EngineError):
    """The model's files are missing, damaged or of an architecture that is not supported. `reason` is that of the termination message."""

    reason: ClassVar[str] = "ModelLoadFailed"


class StartupTimeoutError(EngineError):
    """The start took longer than startupTimeout. The message says where it stood."""


class ParameterError(EngineError, ValueError):
    """One request's parameter is invalid.

    `parameter` is the request field at fault, in the field's own spelling (`top_p`); None when it is the request as a whole.
    """

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class ContextLengthError(ParameterError):
    """The prompt, or the prompt and the requested output together, are longer than the model's context."""


class EngineGenerateError(EngineError):
    """One request failed inside the engine; the engine and the other requests live on."""


class EngineBusyError(EngineGenerateError):
    """This request failed by what others take of the engine: try again later."""


class EngineNotReadyError(EngineError):
    """The engine is starting, draining or unresponsive: try again later."""


class QueueFullError(EngineError):
    """Too many requests, or prompt tokens, wait for their first token: try again later."""


class RequestTimeoutError(EngineError):
    """The request took longer than requests may take; the engine computes nothing for it any more."""


class EngineDeadError(EngineError):
    """The engine that ran this request is gone."""


class SocketDirectoryError(EngineError):
    """A socket directory cannot be made or used. The message has the path, and who holds it."""


class UnsupportedClientError(EngineError, NotImplementedError):
    """No client of this kind exists. The message says which to take instead."""
