"""Settings as another version may have written them: each field that can be read counts, every other one has its default."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from stoker_engine.settings import Bounds, Settings, bounds_of

SettingsT = TypeVar("SettingsT", bound=Settings)


def read_settings(settings: type[SettingsT], raw: object) -> SettingsT:
    """Of a struct whose fields all have defaults; `raw` is JSON as Python has it."""
    if not isinstance(raw, Mapping):
        return settings()
    values: dict[str, object] = {}
    for field in _fields(settings):
        if field.encode_name in raw:
            value = raw[field.encode_name]
            if field.section is not None:
                values[field.name] = read_settings(field.section, value)
            else:
                # Nothing where it cannot be read.
                values |= field.read(value)
    return settings(**values)


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    encode_name: str
    type: Any
    section: type[Settings] | None
    bounds: Bounds | None

    def read(self, value: object) -> dict[str, object]:
        """As an argument by its name; empty for what is none."""
        try:
            found = msgspec.convert(value, self.type)
        except msgspec.ValidationError:
            return {}
        return {self.name: found} if found is None or self.bounds is None or self.bounds.holds(found) else {}


@functools.cache
def _fields(settings: type[Settings]) -> tuple[_Field, ...]:
    """Read once: it takes a millisecond, and there may be thousands of objects."""
    bounds = bounds_of(settings)
    return tuple(
        _Field(each.name, each.encode_name, each.type, type(each.default) if isinstance(each.default, Settings) else None, bounds.get(each.encode_name))
        for each in msgspec.structs.fields(settings)
    )
