"""What /tokenize and /detokenize take and answer, in vLLM's field names."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.fields import FieldRules
from stoker_gateway.openai.request import MAX_MESSAGES, ChatMessage, TokenId
from stoker_gateway.openai.tools import Tools, check_tools

TOKENIZE_RULES = FieldRules(ignored=frozenset())
DETOKENIZE_RULES = FieldRules(ignored=frozenset())


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """Either a prompt or messages. `add_special_tokens` is by default true for a prompt, and false for messages, whose template writes what it wants."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool = False

    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    continue_final_message: bool = False
    tools: Tools | None = None

    def check(self) -> None:
        """Raises ApiError (400) where there is no prompt, or two."""
        if self.prompt is not None and self.messages is not None:
            raise ApiError("prompt and messages exclude each other.", param="messages")
        if self.prompt is None and self.messages is None:
            raise ApiError("Missing required parameter: 'prompt' or 'messages'.", param="prompt", code="missing_required_parameter")
        if self.continue_final_message and self.add_generation_prompt:
            raise ApiError("continue_final_message excludes add_generation_prompt.", param="continue_final_message")
        check_tools(self.tools, None)


class Tokenized(msgspec.Struct):
    """`token_strs` are the vocabulary's own spellings, null unless they were asked for."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    model: str | None = None
    tokens: list[TokenId]


class Detokenized(msgspec.Struct):
    """The text of the tokens, special ones included."""

    prompt: str


class Version(msgspec.Struct):
    version: str
