"""What becomes of each request field that is not honored: ignored, or refused by name unless it asks for what happens anyway."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from stoker_gateway.openai.errors import ApiError

_IGNORED = frozenset({"metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "user"})
"""They change no answer: labels, and hints to OpenAI's own caches."""

_INSTEAD = {"functions": "tools", "function_call": "tool_choice"}
"""What OpenAI has replaced them by."""


@dataclass(slots=True, frozen=True)
class FieldRules:
    """`ignored` fields may hold anything. `refused` maps a field to the values that are harmless; any other value is answered with 400."""

    ignored: frozenset[str]
    refused: dict[str, tuple[object, ...]] = field(default_factory=dict)

    def check(self, name: str, value: object) -> None:
        """Raises ApiError (400) for a field that is refused, or that no API has."""
        if name in self.ignored:
            return
        if name not in self.refused:
            raise ApiError(f"Unrecognized request argument supplied: {name[:100]}", param=name)
        if any(type(value) is type(harmless) and value == harmless for harmless in self.refused[name]):
            return
        instead = f"; use {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise ApiError(f"{name} is not supported by this server{_explain(self.refused[name])}{instead}.", param=name)


def _explain(harmless: tuple[object, ...]) -> str:
    return "" if not harmless else " beyond " + " or ".join(msgspec.json.encode(value).decode() for value in harmless)


CHAT_RULES = FieldRules(
    ignored=_IGNORED | {"prediction"},
    refused={
        "audio": (),
        "function_call": ("none", "auto"),
        "functions": (),
        "modalities": (["text"],),
        "moderation": (),
        "service_tier": ("auto", "default"),
        "store": (False,),
        "verbosity": ("medium",),
        "web_search_options": (),
    },
)
"""`prediction` only makes an answer faster."""

COMPLETION_RULES = FieldRules(
    ignored=_IGNORED,
    refused={"best_of": (1,), "service_tier": ("auto", "default"), "store": (False,), "suffix": ("",)},
)


def drop_nulls(body: dict[str, Any]) -> dict[str, Any]:
    """A null behaves as if the field were absent."""
    return {name: value for name, value in body.items() if value is not None}
