"""What /v1/responses takes: OpenAI's fields that are honored, then vLLM's, and what becomes of the others."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.fields import FieldRules
from stoker_gateway.openai.request import MAX_MESSAGES, MAX_TOP_LOGPROBS, PositiveTokenCount, TokenCount, TokenId
from stoker_gateway.openai.structured_outputs import SchemaName
from stoker_gateway.openai.tools import MAX_TOOLS

LOGPROBS = "message.output_text.logprobs"
MAX_METADATA = 16
Label = Annotated[str, Meta(max_length=512)]
"""A string that is kept and given back, and means nothing here."""
FunctionToolName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}\Z")]

Include = Literal[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
]
"""Beside the log probabilities they are of what no answer of this server has."""


class InputPart(msgspec.Struct):
    """One part of a message or of a reasoning item."""

    type: str
    text: str | None = None
    refusal: str | None = None


class InputItem(msgspec.Struct, kw_only=True):
    """A message, by default, or an item of an earlier answer. Fields of items that are not read are ignored: clients replay whole items."""

    type: str = "message"
    role: str | None = None
    content: str | Annotated[list[InputPart], Meta(max_length=MAX_MESSAGES)] | None = None
    arguments: str | None = None
    call_id: str | None = None
    name: str | None = None
    output: str | Annotated[list[InputPart], Meta(max_length=MAX_MESSAGES)] | None = None


class FunctionTool(msgspec.Struct, kw_only=True):
    """`type` is "function"; a tool of another type may have any fields."""

    type: str
    name: FunctionToolName | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ResponsesToolChoice(msgspec.Struct, kw_only=True):
    """The model must call this function."""

    name: FunctionToolName
    type: Literal["function"]


class ReasoningConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The reasoning is given whole, so that "auto" is no summary."""

    context: Literal["auto"] | None = None
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    generate_summary: Literal["auto"] | None = None
    mode: Literal["standard"] | None = None
    summary: Literal["auto"] | None = None


class TextFormat(msgspec.Struct, forbid_unknown_fields=True):
    """All but `type` is for the type json_schema."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: SchemaName | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class TextConfig(msgspec.Struct, forbid_unknown_fields=True):
    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class ResponsesStreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """`include_obfuscation` pads OpenAI's own events; it is taken and does nothing."""

    include_obfuscation: bool | None = None


class ResponsesRequest(msgspec.Struct, kw_only=True):
    """None is "not given". The fields from `cache_salt` on are vLLM's, with the names and meanings that they have for chat completions."""

    model: str
    input: str | Annotated[list[InputItem], Meta(min_length=1, max_length=MAX_MESSAGES)]
    background: bool = False
    include: list[Include] | None = None
    instructions: str | None = None
    max_output_tokens: PositiveTokenCount | None = None
    metadata: Annotated[dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=MAX_METADATA)] | None = None
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt_cache_key: Label | None = None
    reasoning: ReasoningConfig | None = None
    safety_identifier: Label | None = None
    store: bool = True
    stream: bool = False
    stream_options: ResponsesStreamOptions | None = None
    temperature: float | None = None
    text: TextConfig | None = None
    tool_choice: Literal["none", "auto", "required"] | ResponsesToolChoice | None = None
    tools: Annotated[list[FunctionTool], Meta(max_length=MAX_TOOLS)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    top_p: float | None = None
    user: Label | None = None

    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    frequency_penalty: float | None = None
    ignore_eos: bool = False
    logit_bias: dict[TokenId, float] | None = None
    min_p: float | None = None
    min_tokens: TokenCount | None = None
    presence_penalty: float | None = None
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)] = 0
    repetition_penalty: float | None = None
    seed: int | None = None
    skip_special_tokens: bool = True
    stop: str | list[str] | None = None
    stop_token_ids: list[TokenId] | None = None
    top_k: Annotated[int, Meta(ge=-1, lt=2**31)] | None = None

    @property
    def wants_logprobs(self) -> bool:
        return LOGPROBS in (self.include or ())

    def check(self) -> None:
        """Raises ApiError (400) for fields that exclude each other."""
        if self.stream_options is not None and not self.stream:
            raise ApiError("stream_options is only allowed when stream is true.", param="stream_options")
        if self.background and not self.store:
            raise ApiError("background needs store to be true: the answer is fetched later.", param="background")
        if self.top_logprobs is not None and not self.wants_logprobs:
            raise ApiError(f"top_logprobs needs {LOGPROBS!r} in include.", param="top_logprobs")


RESPONSES_RULES = FieldRules(
    ignored=frozenset({"max_tool_calls", "prompt_cache_options", "prompt_cache_retention"}),
    refused={
        "access_programs": (),
        "background_options": ({}, {"completion_window": "soonest"}),
        "context_management": ([],),
        "conversation": (),
        "image": (),
        "moderation": (),
        "prompt": (),
        "service_tier": ("auto", "default"),
        "truncation": ("disabled",),
    },
)
"""`max_tool_calls` is of tools that run on OpenAI's servers."""
