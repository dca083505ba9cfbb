"""Reads typed values out of a model's configuration, whatever wrote it, and says which key is wrong and how."""

from collections.abc import Mapping

from stoker_engine.errors import ModelLoadError


class ConfigFields:
    """The keys and values of one file or one section of it; `source` names it in errors. A null counts as absent."""

    def __init__(self, values: Mapping[str, object], source: str) -> None:
        self._values = values
        self.source = source

    def get(self, key: str) -> object:
        return self._values.get(key)

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def integer(self, key: str, default: int | None = None, minimum: int = 1) -> int:
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise self.error(key, f"must be an integer of at least {minimum}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._value(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0 or value == float("inf"):
            raise self.error(key, "must be a number above 0")
        return float(value)

    def boolean(self, key: str, *, default: bool) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.error(key, "must be true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.error(key, "must be a string")
        return value

    def section(self, key: str) -> "ConfigFields":
        """The object below `key`; without keys if it is absent."""
        value = self._value(key, {})
        if not isinstance(value, Mapping):
            raise self.error(key, "must be an object")
        return ConfigFields(value, f"{self.source}: {key}")

    def error(self, key: str, expectation: str) -> ModelLoadError:
        if key not in self:
            return ModelLoadError(f"{self.source}: {key} is missing; it {expectation}")
        return ModelLoadError(f"{self.source}: {key} {expectation}, got {self._values[key]!r}")

    def _value(self, key: str, default: object) -> object:
        value = self._values.get(key)
        return default if value is None else value
