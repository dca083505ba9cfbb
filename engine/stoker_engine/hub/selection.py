"""Which files of a repository a program needs. Pickles (*.bin, *.pth) are never among them: reading one can run code."""

import enum
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from stoker_engine.errors import ModelLoadError
from stoker_engine.hub.address import HubAddress
from stoker_engine.hub.errors import NotOnHubError

CONFIG_NAME = "config.json"
INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"

_TEXT_SUFFIXES = frozenset({".json", ".jinja", ".model", ".tiktoken"})
_TEXT_NAMES = frozenset({"merges.txt", "vocab.txt"})
MAX_NAMES_TOLD = 8


class FileSet(enum.Enum):
    """TOKENIZER: configuration, tokenizer and chat template, as the api needs. MODEL: the weights, too."""

    TOKENIZER = "tokenizer"
    MODEL = "model"


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def select_files(address: HubAddress, names: Sequence[str], file_set: FileSet, index: bytes | None) -> list[str]:
    """Of the repository's files `names`. `index` is the content of INDEX_NAME, where there is one. A GGUF file holds its own tokenizer.

    Raises ModelLoadError, naming the file, where one is missing, and NotOnHubError with the choice where there are several models.
    """
    if address.file is not None:
        if address.file not in names:
            raise NotOnHubError(f"model.uri: the repository {address.repository!r} has no file {address.file!r}; {_told(_gguf_files(names))}")
        return [address.file]
    weights = _weights(address, names, index)
    if weights is None:
        return [_only_gguf_file(address, names)]
    if CONFIG_NAME not in names:
        raise ModelLoadError(f"model.uri: {str(address)!r} has no {CONFIG_NAME}: it is no model that can be served")
    text = [name for name in names if "/" not in name and _is_text(name)]
    return [*text, *(weights if file_set is FileSet.MODEL else ())]


def needs_index(address: HubAddress, names: Sequence[str]) -> bool:
    """Which files hold the weights is written in INDEX_NAME."""
    return address.file is None and INDEX_NAME in names


def _is_text(name: str) -> bool:
    return name in _TEXT_NAMES or (PurePosixPath(name).suffix in _TEXT_SUFFIXES)


def _weights(address: HubAddress, names: Sequence[str], index: bytes | None) -> list[str] | None:
    """The safetensors files; None where the repository has none."""
    if index is not None:
        shards = _shards(address, index)
        if missing := sorted(set(shards) - set(names)):
            raise ModelLoadError(f"model.uri: {str(address)!r} lacks {_listed(missing)}, though its {INDEX_NAME} lists them")
        return shards
    if SINGLE_NAME in names:
        return [SINGLE_NAME]
    if others := [name for name in names if "/" not in name and name.endswith(".safetensors")]:
        raise ModelLoadError(f"model.uri: {str(address)!r} has neither {SINGLE_NAME} nor {INDEX_NAME}, only {_listed(others)}")
    return None


def _shards(address: HubAddress, index: bytes) -> list[str]:
    try:
        weight_map: Mapping[str, str] = msgspec.json.decode(index, type=_Index).weight_map
    except msgspec.DecodeError as error:
        raise ModelLoadError(f"model.uri: {INDEX_NAME} of {str(address)!r} is not a valid index: {error}") from error
    return sorted(set(weight_map.values()))


def _only_gguf_file(address: HubAddress, names: Sequence[str]) -> str:
    files = _gguf_files(names)
    if len(files) == 1:
        return files[0]
    if files:
        raise NotOnHubError(f"model.uri: {str(address)!r} has {len(files)} GGUF files; name one as hf://{address.repository}/<file>: {_listed(files)}")
    pickles = [name for name in names if name.endswith((".bin", ".pth", ".pt"))]
    more = f": {_listed(pickles)} can run code when read, and is not used" if pickles else ""
    raise NotOnHubError(f"model.uri: {str(address)!r} has no weights as safetensors or GGUF{more}")


def _gguf_files(names: Sequence[str]) -> list[str]:
    return [name for name in names if name.endswith(".gguf")]


def _told(files: Sequence[str]) -> str:
    return f"its GGUF files: {_listed(files)}" if files else "it has no GGUF file at all"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES_TOLD} more" if len(names) > MAX_NAMES_TOLD else ""
    return ", ".join(names[:MAX_NAMES_TOLD]) + more
