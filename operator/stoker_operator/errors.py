"""Errors of the operator and the `stoker` command.

OperatorError
├── ManifestError    a file is wrong: names file, line, path, value and what is allowed (exit code 2)
├── LocalError       this machine cannot run it: a port in use, a directory that is not ours (exit code 1)
├── ReplicaError     a replica cannot become ready or cannot answer: its own words (exit code 1)
├── InvalidSpecError  an object in the cluster cannot be used: names the field
└── ClusterError
    ├── ApiError                  the API server refuses a call, in its own words
    ├── ContestedError            somebody undoes what we write
    ├── ClusterUnreachableError   it does not answer, or nobody says where it is
    └── LeaseLostError            another operator holds the Lease (exit code 1)
"""

from typing import ClassVar


class OperatorError(Exception):
    """Base of all errors in this package."""


class ManifestError(OperatorError):
    """A manifest is wrong. The message is one line."""


class LocalError(OperatorError):
    """Something on this machine is in the way. The message names it."""


class ReplicaError(OperatorError):
    """A replica cannot do its work. The message has its own words."""


class InvalidSpecError(OperatorError):
    """An InferenceDeployment that the API server holds cannot be used. The message names the field."""


class ClusterError(OperatorError):
    """A call to the API server came to nothing. `retry_after`: seconds before another try, where that is known."""

    retry_after: float | None = None


class ContestedError(ClusterError):
    """Somebody else undoes what we write, again and again."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ClusterUnreachableError(ClusterError):
    """The API server does not answer."""


class LeaseLostError(ClusterError):
    """The Lease could not be renewed in time, or has another holder."""


class ApiError(ClusterError):
    """The API server's refusal. `message` is its own, word for word; `retry_after` in seconds, where it gave one."""

    INVALID: ClassVar[str] = "Invalid"
    """`reason` of an object that can never be taken as it is."""

    def __init__(self, call: str, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{call}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def passing(self) -> bool:
        """Whether the same call may succeed later as it is: a conflict, a throttled or a failing API server."""
        return self.reason != self.INVALID and (self.status in (408, 409, 429) or self.status >= 500)
