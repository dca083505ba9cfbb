"""Errors of the operator and the `stoker` command.

OperatorError
├── ManifestError    a file is wrong: names file, line, path, value and what is allowed (exit code 2)
├── LocalError       this machine cannot run it: a port in use, a directory that is not ours (exit code 1)
└── ReplicaError     a replica cannot become ready or cannot answer: its own words (exit code 1)
"""


class OperatorError(Exception):
    """Base of all errors in this package."""


class ManifestError(OperatorError):
    """A manifest is wrong. The message is one line."""


class LocalError(OperatorError):
    """Something on this machine is in the way. The message names it."""


class ReplicaError(OperatorError):
    """A replica cannot do its work. The message has its own words."""
