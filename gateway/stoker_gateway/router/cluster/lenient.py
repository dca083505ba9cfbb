"""Settings as another version may have written them: each field that can be read counts, every other one has its default."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from stoker_engine.settings import Settings, bounds_of

SettingsT = TypeVar("SettingsT", bound=Settings)


def read_settings(settings: type[SettingsT], raw: object) -> SettingsT:
    """Of a struct whose fields all have defaults; `raw` is JSON as Python has it."""
    if not isinstance(raw, Mapping):
        return settings()
    bounds = bounds_of(settings)
    values: dict[str, object] = {}
    for field in msgspec.structs.fields(settings):
        if field.encode_name not in raw:
            continue
        value = raw[field.encode_name]
        if isinstance(field.default, Settings):
            values[field.name] = read_settings(type(field.default), value)
        elif _is_readable(field, value) and (field.encode_name not in bounds or value is None or bounds[field.encode_name].holds(value)):
            values[field.name] = msgspec.convert(value, field.type)
    return settings(**values)


def _is_readable(field: msgspec.structs.FieldInfo, value: object) -> bool:
    try:
        msgspec.convert(value, field.type)
    except msgspec.ValidationError:
        return False
    return True
