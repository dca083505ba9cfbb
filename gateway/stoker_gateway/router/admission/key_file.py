"""The file of API keys: read entry by entry, so that a broken one costs nobody else anything."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec
import yaml
from msgspec import Meta

from stoker_engine.settings import Settings, to_the_end

MAX_FILE_BYTES = 1 << 20

KeyName = Annotated[str, Meta(pattern=to_the_end(r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"), max_length=63, examples=["team-a"])]
Digest = Annotated[str, Meta(pattern=to_the_end(r"^[0-9a-f]{64}$"))]
PerMinute = Annotated[int, Meta(ge=1, le=10**12)] | None


class KeyEntry(Settings, frozen=True, kw_only=True):
    """Whoever has one name: its keys never themselves, only their SHA-256."""

    name: KeyName
    """Of whoever has it: in logs, in metrics, and to share a queue fairly."""
    sha256: Digest | Annotated[tuple[Digest, ...], Meta(min_length=1, max_length=8)]
    """Several while one key takes another's place."""
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    """Of requests that wait, those of lower ones go first."""
    requests_per_minute: PerMinute = None
    tokens_per_minute: PerMinute = None
    """Of prompts and answers, as usage says; estimated of their bytes, 4 to a token, where there is none."""

    @property
    def digests(self) -> tuple[str, ...]:
        return (self.sha256,) if isinstance(self.sha256, str) else self.sha256


@dataclass(frozen=True, slots=True)
class KeyFile:
    """`faults` says what of the file is of no use, each with its place."""

    entries: tuple[KeyEntry, ...]
    faults: tuple[str, ...]


def parse_key_file(content: bytes) -> KeyFile:
    """YAML, or JSON: `keys`, a list of entries. Raises ValueError where it is no such file at all."""
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"it is larger than {MAX_FILE_BYTES} bytes")
    try:
        document = yaml.load(content, yaml.CSafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        # The parser's own words may have a piece of the file in them.
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        raise ValueError("it is no YAML" + (f": see line {mark.line + 1}" if mark else "")) from None
    if not isinstance(document, Mapping) or not isinstance(document.get("keys"), list):
        raise ValueError("it has no list of entries under 'keys'")
    entries: dict[str, KeyEntry] = {}
    owners: dict[str, str] = {}
    faults: list[str] = []
    for index, item in enumerate(document["keys"]):
        try:
            entry = msgspec.convert(item, KeyEntry)
            if entry.name in entries:
                raise ValueError(f"there is another entry of {entry.name!r}, which counts")
            if owner := next((owners[digest] for digest in entry.digests if digest in owners), ""):
                raise ValueError(f"{entry.name!r} has the same key as {owner!r}, which counts")
            entries[entry.name] = entry
            owners |= dict.fromkeys(entry.digests, entry.name)
        except ValueError as error:
            faults.append(f"keys[{index}]: {error}")
    return KeyFile(tuple(entries.values()), tuple(faults))
