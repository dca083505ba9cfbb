"""Memory for weights and KV caches, in large pages where the system has them: a decode then reads its keys and values 1.1 to 1.2 times as fast."""

import mmap
import weakref

import torch
from torch import Tensor

LARGE_PAGE = 1 << 21
REGION_BYTES = 1 << 28
ALIGNMENT = 64


def allocate(num_elements: int, dtype: torch.dtype) -> Tensor:
    """A zeroed tensor of one dimension and at least one element whose pages take memory when they are first written. It begins with a large page."""
    pages, start = _map(num_elements * dtype.itemsize)
    return torch.frombuffer(pages, dtype=dtype, count=num_elements, offset=start)


def allocate_apart(num_elements: int, dtype: torch.dtype) -> Tensor:
    """A zeroed tensor of one dimension and at least one element in small pages of its own, which go back to the system with it.

    What malloc takes back it keeps, in pieces, where something that stays lies between.
    """
    return torch.frombuffer(mmap.mmap(-1, num_elements * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=dtype)


class Arena:
    """Tensors side by side: most weights are too small to have large pages of their own. A region of them is given back when the last one in it is gone.

    With SmolLM2-135M, whose matrices have 0.7 to 3.5 MB, a decode step of one request takes 0.88 to 0.95 of the time that it takes in small pages.
    """

    def __init__(self) -> None:
        self._region: weakref.ref[mmap.mmap] | None = None
        self._next = 0

    def allocate(self, num_bytes: int) -> Tensor:
        """A zeroed tensor of this many bytes, at least one, which are aligned for any element."""
        pages = None if self._region is None else self._region()
        if pages is None or self._next + num_bytes > len(pages):
            pages, self._next = _map(max(num_bytes, REGION_BYTES))
            self._region = weakref.ref(pages)
        tensor = torch.frombuffer(pages, dtype=torch.uint8, count=num_bytes, offset=self._next)
        self._next += -(-num_bytes // ALIGNMENT) * ALIGNMENT
        return tensor


def _map(num_bytes: int) -> tuple[mmap.mmap, int]:
    """Memory for so many bytes from an offset on, at which a large page begins."""
    # Private: shared memory, the default, has no large pages on most systems.
    pages = mmap.mmap(-1, num_bytes + LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages, -torch.frombuffer(pages, dtype=torch.uint8).data_ptr() % LARGE_PAGE
