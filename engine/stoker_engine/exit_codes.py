"""Exit codes of both programs: what a supervisor can act on."""

import enum


class ExitCode(enum.IntEnum):
    OK = 0
    """Drained, or aborted on request."""
    FAILED = 1
    """Failure at run time."""
    BAD_CONFIG = 2
    """Bad configuration or input file."""
    STARTUP_TIMEOUT = 3
    MODEL_LOAD_FAILED = 4
    ENGINE_DEAD = 70
    """A step hangs or a thread of the engine failed, found by the engine itself."""
