"""model.uri → files: resolves a model's address to a path on this machine, and says clearly what is missing."""

import importlib.util
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from stoker_engine.errors import ConfigError
from stoker_engine.hub.address import SCHEME, parse_hub_address

_NOT_HERE = {
    "pvc://": "a claim is mounted by the operator, which names it file:///models/… to the programs; without Kubernetes write file:///directory",
    "s3://": "object stores are not read yet; copy the model to a directory or a PersistentVolumeClaim and name that",
    "oci://": "images are not read yet; copy the model to a directory or a PersistentVolumeClaim and name that",
}


def check_model(uri: str) -> None:
    """Raises ConfigError for a model that this machine neither has nor can download. Whether a hub has it only the download can tell."""
    if is_on_hub(uri):
        parse_hub_address(uri)
    else:
        resolve_model(uri)


def is_on_hub(uri: str) -> bool:
    return uri.startswith(SCHEME)


def resolve_model(uri: str) -> Path:
    """The Hugging Face directory or GGUF file that `uri` names on this machine. Raises ConfigError if it is not there."""
    if uri.startswith("package://"):
        path = _resolve_package(uri)
    elif uri.startswith("file:///"):
        path = Path(uri.removeprefix("file://"))
    else:
        raise _not_here(uri)
    if not path.exists():
        raise ConfigError(f"model.uri: {uri!r} names {path}, which does not exist")
    if path.is_dir() and not (path / "config.json").is_file():
        raise ConfigError(f"model.uri: {uri!r} names a directory without config.json: {path}")
    if path.is_file() and path.suffix != ".gguf":
        raise ConfigError(f"model.uri: {uri!r} names a file that is not .gguf; a Hugging Face model is a directory")
    return path


def _not_here(uri: str) -> ConfigError:
    for scheme, advice in _NOT_HERE.items():
        if uri.startswith(scheme):
            return ConfigError(f"model.uri: {uri!r}: {advice}")
    if is_on_hub(uri):
        return ConfigError(f"model.uri: {uri!r} is not on this machine: it is to be downloaded first")
    return ConfigError(f"model.uri: expected hf://…, file:///… or package://…, got {uri!r}")


def _resolve_package(uri: str) -> Path:
    """A file of an installed distribution, found without importing it (its own dependencies may be absent)."""
    distribution, _, name = uri.removeprefix("package://").partition("/")
    if not name:
        raise ConfigError(f"model.uri: {uri!r} names no file; write package://{distribution}/<file>")
    try:
        listed = files(distribution) or []
    except PackageNotFoundError:
        raise ConfigError(f"model.uri: {uri!r} needs the Python distribution {distribution!r}, which is not installed") from None
    for entry in listed:
        if entry.name == name or str(entry) == name:
            return Path(str(entry.locate()))
    spec = importlib.util.find_spec(distribution.replace("-", "_"))
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    raise ConfigError(f"model.uri: the Python distribution {distribution!r} has no file {name!r}")
