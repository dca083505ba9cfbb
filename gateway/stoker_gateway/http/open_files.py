"""How many files a process may have open: each connection is one, and a login shell's limit is often 1,024."""

import contextlib
import resource


def raise_open_files_limit() -> None:
    """To what the process may give itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # "unlimited" is more than some kernels let a process have
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
