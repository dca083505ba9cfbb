"""model.uri → files: resolves a model's address to a path on this machine, and says clearly what is missing."""

import importlib.util
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from stoker_engine.errors import ConfigError


def resolve_model(uri: str) -> Path:
    """The Hugging Face directory or GGUF file that `uri` names. Raises ConfigError if it is not there."""
    if uri.startswith("package://"):
        path = _resolve_package(uri)
    elif uri.startswith("file:///"):
        path = Path(uri.removeprefix("file://"))
    else:
        raise ConfigError(f"model.uri: expected file:///… or package://…, got {uri!r}")
    if not path.exists():
        raise ConfigError(f"model.uri: {uri!r} names {path}, which does not exist")
    if path.is_dir() and not (path / "config.json").is_file():
        raise ConfigError(f"model.uri: {uri!r} names a directory without config.json: {path}")
    if path.is_file() and path.suffix != ".gguf":
        raise ConfigError(f"model.uri: {uri!r} names a file that is not .gguf; a Hugging Face model is a directory")
    return path


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
