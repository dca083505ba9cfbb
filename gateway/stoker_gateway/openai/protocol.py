"""What the API answers: completions, chat completions, their chunks, usage, logprobs and the model list, in OpenAI's field names.

A field that is UNSET is left out of the JSON; one that is None is written as null.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType


class PromptTokensDetails(msgspec.Struct):
    cached_tokens: Annotated[int, Meta(description="Prompt tokens that the prefix cache served.")]


class CompletionTokensDetails(msgspec.Struct):
    reasoning_tokens: Annotated[int, Meta(description="Sampled tokens of reasoning, its marks included.")]


class Usage(msgspec.Struct):
    """`completion_tokens` counts the sampled tokens of all choices; each prompt is counted once. The details are those of a model that may reason."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET


def make_usage(num_prompt_tokens: int, num_output_tokens: int, num_cached_tokens: int) -> Usage:
    return Usage(num_prompt_tokens, num_output_tokens, num_prompt_tokens + num_output_tokens, PromptTokensDetails(num_cached_tokens))


class TopLogprob(msgspec.Struct):
    """`bytes` is the token's UTF-8, which may be part of a character."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct):
    """One generated token; `top_logprobs` are the most likely tokens at its position, most likely first."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct):
    """Parallel lists. `text_offset` is each token's first character in the choice's whole text; the first prompt token's logprob is null."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class PromptLogprob(msgspec.Struct):
    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[int, PromptLogprob] | None]
"""One entry per prompt token, by token id; null for the first."""


class FunctionCall(msgspec.Struct):
    """`arguments` are JSON text, as the model wrote it: it may be malformed, or cut short where the answer was."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct):
    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class ChatMessageResponse(msgspec.Struct):
    """`content` is null where there are calls and nothing else. Reasoning, where the model reasons, is under both names that clients look for."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatCompletionChoice(msgspec.Struct):
    index: int
    message: ChatMessageResponse
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct):
    id: str
    created: int
    model: str
    choices: list[ChatCompletionChoice]
    usage: Usage
    system_fingerprint: str
    object: Literal["chat.completion"] = "chat.completion"
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class FunctionCallDelta(msgspec.Struct):
    """`arguments` is the next piece of the text."""

    arguments: str
    name: str | UnsetType = UNSET


class ToolCallDelta(msgspec.Struct):
    """`index` counts the calls of one choice. A call's first delta has its id, type and name, the others have not."""

    index: int
    function: FunctionCallDelta
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class ChatDelta(msgspec.Struct):
    """The first delta of a choice has the role, the last is empty."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChatCompletionChunkChoice(msgspec.Struct):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletionChunk(msgspec.Struct):
    """`usage` is null in every chunk but the last where usage was asked for, and absent where it was not."""

    id: str
    created: int
    model: str
    choices: list[ChatCompletionChunkChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: Usage | UnsetType | None = UNSET
    system_fingerprint: str | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class CompletionChoice(msgspec.Struct):
    """A choice of a whole answer or of a chunk; in a chunk, `finish_reason` is null until the choice's last."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None
    token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class Completion(msgspec.Struct):
    """A whole answer, or one chunk of a stream: OpenAI gives both the object `text_completion`."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    object: Literal["text_completion"] = "text_completion"
    usage: Usage | UnsetType | None = UNSET
    system_fingerprint: str | UnsetType = UNSET


class Model(msgspec.Struct):
    """`root` is the name the model is served under first; an alias points to it by `parent`."""

    id: str
    created: int
    root: str
    parent: str | None
    max_model_len: int
    object: Literal["model"] = "model"
    owned_by: str = "stoker"


class ModelList(msgspec.Struct):
    data: list[Model]
    object: Literal["list"] = "list"


encode = msgspec.json.Encoder().encode
