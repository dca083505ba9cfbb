"""The tensors of a Hugging Face directory: one safetensors file, or shards that an index lists."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from stoker_engine.errors import ModelLoadError
from stoker_engine.models.config import ModelShape, read_config

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


@dataclass(frozen=True, slots=True)
class DirectoryCheckpoint:
    """A Hugging Face directory whose config has been read and checked."""

    path: Path
    shape: ModelShape

    def iterate_tensors(self, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
        """(name, tensor) of every tensor, memory-mapped, in the dtype of the file. Files that the index does not list are left alone.

        Raises ModelLoadError naming the file that is missing, cut short or damaged.
        """
        for file in _files(self.path):
            yield from _iterate_file(file)


def open_directory(directory: Path) -> DirectoryCheckpoint:
    """Reads the config of a Hugging Face directory. Raises ModelLoadError naming the file, key and value at fault."""
    shape = read_config(directory)
    if shape.dtype is None:
        shape = replace(shape, dtype=_stored_dtype(directory))
    return DirectoryCheckpoint(directory, shape)


def _iterate_file(path: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            for name in sorted(file.keys(), key=_layer_order):
                yield name, file.get_tensor(name)
    except FileNotFoundError:
        raise ModelLoadError(f"{path}: missing, though {INDEX_NAME} lists it") from None
    except (SafetensorError, OSError) as error:
        raise ModelLoadError(f"{path}: cannot be read, it may be cut short: {error}") from error


def _layer_order(name: str) -> list[tuple[int, str]]:
    """Layer 2 before layer 10: a model takes its layers in their order, and what comes before its turn has to wait in memory."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in name.split(".")]


def _stored_dtype(directory: Path) -> torch.dtype:
    """The dtype of the first tensor, for configs that do not say."""
    for _, tensor in _iterate_file(_files(directory)[0]):
        return tensor.dtype
    raise ModelLoadError(f"{_files(directory)[0]}: has no tensors")


def _files(directory: Path) -> list[Path]:
    index = directory / INDEX_NAME
    if index.is_file():
        try:
            weight_map = msgspec.json.decode(index.read_bytes(), type=_Index).weight_map
        except (OSError, msgspec.DecodeError) as error:
            raise ModelLoadError(f"{index}: not a valid index: {error}") from error
        return [directory / name for name in sorted(set(weight_map.values()))]
    if (directory / SINGLE_NAME).is_file():
        return [directory / SINGLE_NAME]
    raise ModelLoadError(f"{directory}: has neither {SINGLE_NAME} nor {INDEX_NAME}")
