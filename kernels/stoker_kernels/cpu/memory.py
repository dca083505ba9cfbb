"""Memory for weights: in large pages where the system has them, which saves the processor most of its address look-ups."""

import mmap

import torch
from torch import Tensor


def allocate(num_elements: int, dtype: torch.dtype) -> Tensor:
    """A zeroed tensor of one dimension whose pages take memory when they are first written."""
    pages = mmap.mmap(-1, max(1, num_elements * dtype.itemsize))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=dtype, count=num_elements)
