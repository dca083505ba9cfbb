"""What becomes of each request field that is not honored: ignored, or refused by name unless it asks for what happens anyway."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from stoker_gateway.openai.errors import ApiError

_IGNORED = frozenset({"metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "user"})
"""They change no answer: labels, and hints to OpenAI's own caches."""


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
        raise ApiError(f"{name} is not supported by this server{_explain(self.refused[name])}.", param=name)


def _explain(harmless: tuple[object, ...]) -> str:
    return "" if not harmless else " beyond " + " or ".join(msgspec.json.encode(value).decode() for value in harmless)


CHAT_RULES = FieldRules(
    ignored=_IGNORED | {"parallel_tool_calls", "prediction"},
    refused={
        "audio": (),
        "function_call": ("none", "auto"),
        "functions": (),
        "modalities": (["text"],),
        "moderation": (),
        "reasoning_effort": (),
        "response_format": ({"type": "text"},),
        "service_tier": ("auto", "default"),
        "store": (False,),
        "tool_choice": ("none", "auto"),
        "tools": (),
        "verbosity": ("medium",),
        "web_search_options": (),
    },
)
"""`prediction` only makes an answer faster; `parallel_tool_calls` needs tools."""

COMPLETION_RULES = FieldRules(
    ignored=_IGNORED,
    refused={"best_of": (1,), "service_tier": ("auto", "default"), "store": (False,), "suffix": ("",)},
)


def drop_nulls(body: dict[str, Any]) -> dict[str, Any]:
    """A null behaves as if the field were absent."""
    return {name: value for name, value in body.items() if value is not None}
