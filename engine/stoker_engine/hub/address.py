"""`hf://org/name` and `hf://org/name/model.gguf`, taken apart."""

import re
from dataclasses import dataclass

from stoker_engine.errors import ConfigError

SCHEME = "hf://"

_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?"
_REPOSITORY = re.compile(rf"{_PART}/{_PART}")
MAX_REPOSITORY_LENGTH = 96


@dataclass(frozen=True, slots=True)
class HubAddress:
    """`repository` is `org/name`; `file` is one GGUF file's path in it, None for the repository's own model."""

    repository: str
    file: str | None = None

    def __str__(self) -> str:
        return SCHEME + "/".join(filter(None, (self.repository, self.file)))


def parse_hub_address(uri: str) -> HubAddress:
    """Raises ConfigError, naming what is wrong."""
    organization, _, rest = uri.removeprefix(SCHEME).partition("/")
    name, _, file = rest.rstrip("/").partition("/")
    repository = f"{organization}/{name}"
    if not _REPOSITORY.fullmatch(repository) or "--" in repository or ".." in repository or len(repository) > MAX_REPOSITORY_LENGTH:
        raise ConfigError(f"model.uri: {uri!r} names no repository; write hf://org/name or hf://org/name/model.gguf")
    if file and (not file.endswith(".gguf") or not all(part.strip(".") for part in file.split("/"))):
        raise ConfigError(f"model.uri: {uri!r} names a file that is not .gguf; any other model is a whole repository: hf://{repository}")
    return HubAddress(repository, file or None)
