"""What /v1/messages takes: the fields that are honored, and what becomes of the others."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from stoker_gateway.openai.fields import FieldRules
from stoker_gateway.openai.request import MAX_MESSAGES, PositiveTokenCount
from stoker_gateway.openai.tools import MAX_TOOLS

ToolName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,128}\Z")]


class TextPart(msgspec.Struct):
    """One part of a tool's result. Hints such as `cache_control` are ignored, here as in blocks."""

    type: str
    text: str | None = None


class Block(msgspec.Struct, kw_only=True):
    """One part of a message's content: text, or a call, its result, or the thinking before it. `signature` and `is_error` change no prompt."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | Annotated[list[TextPart], Meta(max_length=MAX_MESSAGES)] | None = None


class ToolParam(msgspec.Struct, kw_only=True):
    """A tool of another `type` than "custom" runs on Anthropic's servers, and may have any fields."""

    name: ToolName
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class ToolChoiceParam(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`any` requires a call, `tool` one of the tool `name`."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class OutputFormat(msgspec.Struct, kw_only=True):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


Content = str | Annotated[list[Block], Meta(max_length=MAX_MESSAGES)]


class MessageParam(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: Content


class CountTokensRequest(msgspec.Struct, kw_only=True):
    """None is "not given"."""

    model: str
    messages: Annotated[list[MessageParam], Meta(min_length=1, max_length=MAX_MESSAGES)]
    output_config: OutputConfig | None = None
    system: Content | None = None
    tool_choice: ToolChoiceParam | None = None
    tools: Annotated[list[ToolParam], Meta(max_length=MAX_TOOLS)] | None = None


class MessagesRequest(CountTokensRequest, kw_only=True):
    max_tokens: PositiveTokenCount
    stop_sequences: list[str] | None = None
    stream: bool = False
    temperature: float | None = None
    top_k: Annotated[int, Meta(ge=-1, lt=2**31)] | None = None
    top_p: float | None = None


_REFUSED: dict[str, tuple[object, ...]] = {
    "mcp_servers": ([],),
    "speed": ("standard",),
    "thinking": ({"type": "disabled"},),
}
COUNT_TOKENS_RULES = FieldRules(ignored=frozenset({"cache_control", "user_profile_id", "workspace_id"}), refused=_REFUSED)
MESSAGES_RULES = FieldRules(
    ignored=COUNT_TOKENS_RULES.ignored | {"metadata", "service_tier"},
    refused={**_REFUSED, "container": (), "context_management": (), "diagnostics": (), "inference_geo": ()},
)
"""Ignored are labels, and hints to Anthropic's own caches and queues."""
