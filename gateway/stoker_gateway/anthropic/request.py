"""What /v1/messages takes: the fields that are honored, and what becomes of the others."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from stoker_gateway.openai.fields import FieldRules
from stoker_gateway.openai.request import MAX_MESSAGES, PositiveTokenCount


class Block(msgspec.Struct):
    """One part of a message's content. Hints such as `cache_control` are ignored."""

    type: str
    text: str | None = None


Content = str | Annotated[list[Block], Meta(max_length=MAX_MESSAGES)]


class MessageParam(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: Content


class CountTokensRequest(msgspec.Struct, kw_only=True):
    """None is "not given"."""

    model: str
    messages: Annotated[list[MessageParam], Meta(min_length=1, max_length=MAX_MESSAGES)]
    system: Content | None = None


class MessagesRequest(CountTokensRequest, kw_only=True):
    max_tokens: PositiveTokenCount
    stop_sequences: list[str] | None = None
    stream: bool = False
    temperature: float | None = None
    top_k: Annotated[int, Meta(ge=-1, lt=2**31)] | None = None
    top_p: float | None = None


_REFUSED: dict[str, tuple[object, ...]] = {
    "mcp_servers": ([],),
    "output_config": ({},),
    "speed": ("standard",),
    "thinking": ({"type": "disabled"},),
    "tool_choice": ({"type": "auto"}, {"type": "none"}),
    "tools": ([],),
}
COUNT_TOKENS_RULES = FieldRules(ignored=frozenset({"cache_control", "user_profile_id", "workspace_id"}), refused=_REFUSED)
MESSAGES_RULES = FieldRules(
    ignored=COUNT_TOKENS_RULES.ignored | {"metadata", "service_tier"},
    refused={**_REFUSED, "container": (), "context_management": (), "diagnostics": (), "inference_geo": ()},
)
"""Ignored are labels, and hints to Anthropic's own caches and queues."""
