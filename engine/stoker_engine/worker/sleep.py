"""Memory that a sleeping worker gives back to the system and takes again."""

import ctypes
import dataclasses
import gc
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


class OffloadedWeights:
    """Weights whose memory on the device is freed while a copy of it waits on the host. The tensors stay the objects they are."""

    def __init__(self, model: Any) -> None:
        storages = {storage.data_ptr(): storage for storage in (tensor.untyped_storage() for tensor in find_tensors(model))}
        self._copies = [(storage, torch.empty(storage.nbytes(), dtype=torch.uint8).untyped_storage().copy_(storage)) for storage in storages.values()]
        for storage in storages.values():
            storage.resize_(0)

    def restore(self) -> None:
        """Allocates the memory again and fills it."""
        for storage, copy in self._copies:
            storage.resize_(copy.nbytes())
            storage.copy_(copy)


def find_tensors(model: Any) -> list[Tensor]:
    """Every tensor in a model, in the layers, lists and dictionaries that it is made of; each is there once."""
    found: list[Tensor] = []
    seen = set[int]()
    pending = [model]
    while pending:
        item = pending.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            found.append(item)
        else:
            pending.extend(_parts(item))
    return found


def return_freed_memory() -> None:
    """Gives what has been freed back to the system: the C library and the device's allocator keep it for later."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl does not
    if trim is not None:
        trim(0)


def _parts(item: Any) -> Iterator[Any]:
    """What an object of the engine or the kernels, or a container, holds."""
    if isinstance(item, list | tuple | set | frozenset):
        yield from item
    elif isinstance(item, dict):
        yield from item.values()
    elif type(item).__module__.startswith(("stoker_engine.", "stoker_kernels.")):
        if dataclasses.is_dataclass(item):
            yield from (getattr(item, field.name) for field in dataclasses.fields(item))
        else:
            yield from vars(item).values()
