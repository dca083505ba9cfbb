"""What /v1/messages answers, and the events of its stream, in Anthropic's field names."""

from typing import Any, Literal

import msgspec

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class TextBlock(msgspec.Struct, kw_only=True, tag_field="type", tag="text"):
    text: str = ""
    citations: None = None


class ThinkingBlock(msgspec.Struct, kw_only=True, tag_field="type", tag="thinking"):
    """Nobody signs it."""

    thinking: str = ""
    signature: str = ""


class ToolUseBlock(msgspec.Struct, kw_only=True, tag_field="type", tag="tool_use"):
    """`input` is what the model wrote where that is an object, else an object that has its text as `arguments`."""

    id: str
    name: str
    input: dict[str, Any] = {}


ContentBlock = TextBlock | ThinkingBlock | ToolUseBlock


class MessageUsage(msgspec.Struct, kw_only=True):
    """`input_tokens` are those that were computed; `cache_read_input_tokens` are the others of the prompt, which the prefix cache served."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int
    output_tokens: int


def make_usage(num_prompt_tokens: int, num_cached_tokens: int, num_output_tokens: int) -> MessageUsage:
    return MessageUsage(input_tokens=num_prompt_tokens - num_cached_tokens, cache_read_input_tokens=num_cached_tokens, output_tokens=num_output_tokens)


class Message(msgspec.Struct, kw_only=True):
    """`stop_sequence` is the one that matched."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[ContentBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(msgspec.Struct):
    input_tokens: int


class MessageStart(msgspec.Struct, tag="message_start"):
    message: Message


class ContentBlockStart(msgspec.Struct, tag="content_block_start"):
    index: int
    content_block: ContentBlock


class BlockTextDelta(msgspec.Struct, tag="text_delta"):
    text: str


class ThinkingDelta(msgspec.Struct, tag="thinking_delta"):
    thinking: str


class InputJsonDelta(msgspec.Struct, tag="input_json_delta"):
    partial_json: str


class ContentBlockDelta(msgspec.Struct, tag="content_block_delta"):
    index: int
    delta: BlockTextDelta | ThinkingDelta | InputJsonDelta


class ContentBlockStop(msgspec.Struct, tag="content_block_stop"):
    index: int


class StopDelta(msgspec.Struct):
    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(msgspec.Struct, tag="message_delta"):
    """The last but one event: `usage` is that of the whole answer."""

    delta: StopDelta
    usage: MessageUsage


class MessageStop(msgspec.Struct, tag="message_stop"): ...


MessageEvent = MessageStart | ContentBlockStart | ContentBlockDelta | ContentBlockStop | MessageDelta | MessageStop
