"""What the API takes: the fields of chat completions and completions that are honored. None is "not given".

Ranges that depend on the model or that the engine checks itself (temperature, penalties, stop, n …) are not repeated here.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from stoker_gateway.openai.structured_outputs import ResponseFormat, StructuredOutputsRequest
from stoker_gateway.openai.tools import ToolChoice, Tools

TokenId = Annotated[int, Meta(ge=0, lt=2**31)]
TokenCount = Annotated[int, Meta(ge=0, lt=2**31)]
PositiveTokenCount = Annotated[int, Meta(ge=1, lt=2**31)]
LogprobCount = Annotated[int, Meta(ge=-1, lt=2**31)]
MAX_TOP_LOGPROBS = 20
MAX_CHOICES = 256
"""Prompts × n of one request."""
MAX_MESSAGES = 16384
"""Messages of one chat, and parts of one message: with what a template writes around each, more fill any context."""
MAX_BODY_VALUES = 1 << 21
"""Values in one request body; to make so many takes a tenth of a second, in which nothing else is served."""


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """`include_obfuscation` pads OpenAI's own chunks; it is taken and does nothing."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class GenerationRequest(msgspec.Struct, kw_only=True):
    """The fields that chat completions and completions share: OpenAI's, then vLLM's."""

    model: str
    frequency_penalty: float | None = None
    logit_bias: dict[TokenId, float] | None = None
    max_tokens: TokenCount | None = None
    n: int | None = None
    presence_penalty: float | None = None
    response_format: ResponseFormat | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None

    allowed_token_ids: list[TokenId] | None = None
    bad_words: list[str] | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    logprob_token_ids: list[TokenId] | None = None
    min_p: float | None = None
    min_tokens: TokenCount | None = None
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)] = 0
    prompt_logprobs: LogprobCount | None = None
    repetition_penalty: float | None = None
    return_token_ids: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    stop_token_ids: list[TokenId] | None = None
    structured_outputs: StructuredOutputsRequest | None = None
    top_k: Annotated[int, Meta(ge=-1, lt=2**31)] | None = None
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1, lt=2**31)] | None = None

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)


class ContentPart(msgspec.Struct):
    """One part of a message's content; `text` is what the type "text" carries. Hints such as `cache_control` are ignored."""

    type: str
    text: str | None = None
    refusal: str | None = None


class MessageFunctionCall(msgspec.Struct):
    """`arguments` are JSON text; an object is taken, too."""

    name: str
    arguments: str | dict[str, Any] = ""


class MessageToolCall(msgspec.Struct, kw_only=True):
    """A call that the model made earlier."""

    id: str
    function: MessageFunctionCall
    type: Literal["function"] = "function"


class ChatMessage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One message. The fields from `annotations` on are what clients replay from earlier answers."""

    role: str
    content: str | Annotated[list[ContentPart], Meta(max_length=MAX_MESSAGES)] | None = None
    name: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_call_id: str | None = None
    tool_calls: Annotated[list[MessageToolCall], Meta(max_length=MAX_MESSAGES)] | None = None
    annotations: list[Any] | None = None
    audio: Any = None
    function_call: Any = None
    refusal: str | None = None


class ChatCompletionRequest(GenerationRequest, kw_only=True):
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
    logprobs: bool = False
    max_completion_tokens: PositiveTokenCount | None = None
    max_tokens: PositiveTokenCount | None = None
    parallel_tool_calls: bool = True
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    tool_choice: ToolChoice | None = None
    tools: Tools | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None

    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    continue_final_message: bool = False

    @property
    def num_top_logprobs(self) -> int:
        """How many tokens beside the sampled one each position shows."""
        return len(self.logprob_token_ids or ()) if self.top_logprobs is None else self.top_logprobs


class CompletionRequest(GenerationRequest, kw_only=True):
    """`prompt` is a text, several texts, one list of token ids or several."""

    prompt: str | Annotated[list[str | TokenId | list[TokenId]], Meta(min_length=1)]
    echo: bool = False
    logprobs: LogprobCount | None = None
