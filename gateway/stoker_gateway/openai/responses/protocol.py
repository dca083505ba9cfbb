"""What /v1/responses answers, in OpenAI's field names."""

from typing import Any, Literal

import msgspec

from stoker_gateway.openai.protocol import TokenLogprob
from stoker_gateway.openai.responses.request import ResponsesToolChoice

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
Role = Literal["system", "developer", "user", "assistant"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


ErrorCode = Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
"""Those of OpenAI's that occur."""


class OutputText(msgspec.Struct, kw_only=True, tag_field="type", tag="output_text"):
    """`logprobs` is empty unless it was asked for."""

    text: str = ""
    annotations: list[Any] = []
    logprobs: list[TokenLogprob] = []


class OutputMessage(msgspec.Struct, kw_only=True, tag_field="type", tag="message"):
    id: str
    role: Literal["assistant"] = "assistant"
    status: ItemStatus = "in_progress"
    content: list[OutputText] = []


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    text: str


class ReasoningItem(msgspec.Struct, kw_only=True, tag_field="type", tag="reasoning"):
    """The model's reasoning, whole: there is never a summary."""

    id: str
    summary: list[Any] = []
    content: list[ReasoningText] = []
    status: ItemStatus = "in_progress"


class FunctionCallItem(msgspec.Struct, kw_only=True, tag_field="type", tag="function_call"):
    """`arguments` are JSON text, as the model wrote it: it may be malformed, or cut short where the answer was."""

    id: str
    call_id: str
    name: str
    arguments: str = ""
    status: ItemStatus = "in_progress"


class FunctionCallOutputItem(msgspec.Struct, kw_only=True, tag_field="type", tag="function_call_output"):
    id: str
    call_id: str
    output: str
    status: Literal["completed"] = "completed"


class InputText(msgspec.Struct, tag_field="type", tag="input_text"):
    text: str


class InputMessage(msgspec.Struct, kw_only=True, tag_field="type", tag="message"):
    """A message of the input, as /input_items lists it; an earlier answer has the parts of an answer."""

    id: str
    role: Role
    status: Literal["completed"] = "completed"
    content: list[InputText | OutputText] = []


OutputItem = OutputMessage | ReasoningItem | FunctionCallItem
ConversationItem = InputMessage | ReasoningItem | FunctionCallItem | FunctionCallOutputItem


class InputTokensDetails(msgspec.Struct):
    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct):
    """Tokens of reasoning, its marks included; 0 where they cannot be told."""

    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(msgspec.Struct):
    reason: Literal["max_output_tokens"]


class ResponseError(msgspec.Struct):
    code: ErrorCode
    message: str


class ReasoningResponse(msgspec.Struct):
    effort: str | None = None
    summary: None = None


class ToolResponse(msgspec.Struct, kw_only=True):
    name: str
    description: str | None
    parameters: dict[str, Any] | None
    strict: bool
    type: Literal["function"] = "function"


class TextFormatResponse(msgspec.Struct, omit_defaults=True):
    type: str
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class TextConfigResponse(msgspec.Struct):
    format: TextFormatResponse
    verbosity: Literal["medium"] = "medium"


class Response(msgspec.Struct, kw_only=True):
    """The answer, complete or on its way. Sampling fields have the values that are used, whoever set them."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Status
    background: bool
    completed_at: int | None = None
    error: ResponseError | None = None
    frequency_penalty: float
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: None = None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem] = []
    parallel_tool_calls: bool
    presence_penalty: float
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: ReasoningResponse
    safety_identifier: str | None
    service_tier: Literal["default"] = "default"
    store: bool
    temperature: float
    text: TextConfigResponse
    tool_choice: Literal["none", "auto", "required"] | ResponsesToolChoice
    tools: list[ToolResponse]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    user: str | None


class DeletedResponse(msgspec.Struct):
    id: str
    object: Literal["response.deleted"] = "response.deleted"
    deleted: bool = True


class InputItemList(msgspec.Struct):
    """One page of the items; `first_id` and `last_id` are null where it is empty."""

    data: list[ConversationItem]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"
