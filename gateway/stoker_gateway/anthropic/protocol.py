"""What /v1/messages answers, and the events of its stream, in Anthropic's field names."""

from typing import Literal

import msgspec

StopReason = Literal["end_turn", "max_tokens", "stop_sequence"]


class TextBlock(msgspec.Struct, kw_only=True):
    type: Literal["text"] = "text"
    text: str = ""
    citations: None = None


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
    content: list[TextBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(msgspec.Struct):
    input_tokens: int


class MessageStart(msgspec.Struct, tag="message_start"):
    message: Message


class ContentBlockStart(msgspec.Struct, tag="content_block_start"):
    index: int
    content_block: TextBlock


class BlockTextDelta(msgspec.Struct, tag="text_delta"):
    text: str


class ContentBlockDelta(msgspec.Struct, tag="content_block_delta"):
    index: int
    delta: BlockTextDelta


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
