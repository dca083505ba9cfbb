"""Files that say of what something was made, so that it is not made again of the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def is_current(stamp: Path, state: str) -> bool:
    return stamp.exists() and stamp.read_text(encoding="utf-8") == state


@contextmanager
def stamped(stamp: Path, state: str) -> Iterator[None]:
    """The stamp is there when the block has ended well, and gone until then."""
    stamp.unlink(missing_ok=True)
    yield
    stamp.write_text(state, encoding="utf-8")
