"""The garbage collector while a program is imported."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Without the collector, which walks all that has been imported again and again: a tenth of the time. What is there in the end lives as long as the
    program: no later collection looks at it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
