"""The input of a response as messages: what came before it, then its own; and as the chat completion that answers it."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from stoker_engine.errors import ParameterError
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.request import ChatCompletionRequest, ChatMessage, ContentPart
from stoker_gateway.openai.responses.protocol import InputMessage, InputText, OutputText, Role
from stoker_gateway.openai.responses.request import InputItem, InputPart, ResponsesRequest

_ROLES = ("system", "developer", "user", "assistant")
_TEXT_PARTS = ("input_text", "output_text", "text")
_NAMES = {"messages": "input", "max_tokens": "max_output_tokens", "logprobs": "top_logprobs"}
"""Of a chat completion's fields in a response's."""
_COPIED = tuple(sorted(set(ResponsesRequest.__struct_fields__) & set(ChatCompletionRequest.__struct_fields__) - {"model", "stream_options", "top_logprobs"}))


def input_messages(request: ResponsesRequest) -> list[InputMessage]:
    """Raises ApiError (400) naming the item or part that is no text."""
    if isinstance(request.input, str):
        return [_message("user", [request.input])]
    return [_item_message(item, f"input[{index}]") for index, item in enumerate(request.input)]


def chat_request(request: ResponsesRequest, conversation: Sequence[InputMessage]) -> ChatCompletionRequest:
    """The instructions come first: those of earlier requests are not carried over. In the background it is streamed, to show how far it is."""
    messages = [] if request.instructions is None else [ChatMessage(role="system", content=request.instructions)]
    for message in conversation:
        messages.append(ChatMessage(role=message.role, content=[ContentPart("text", part.text) for part in message.content]))
    chat = ChatCompletionRequest(
        model=request.model,
        messages=messages,
        max_completion_tokens=request.max_output_tokens,
        logprobs=request.wants_logprobs,
        top_logprobs=request.top_logprobs,
    )
    for name in _COPIED:
        setattr(chat, name, getattr(request, name))
    chat.stream = request.stream or request.background
    return chat


@contextmanager
def own_names() -> Iterator[None]:
    """Errors name the fields of a response, not those of the chat completion that answers it."""
    try:
        yield
    except ParameterError as error:
        if error.parameter not in _NAMES:
            raise
        raise type(error)(str(error), _NAMES[error.parameter]) from None


def _item_message(item: InputItem, path: str) -> InputMessage:
    if item.type != "message":
        raise ApiError(f"{path}: items of type {item.type[:100]!r} are not supported by this server; only messages are.", param=f"{path}.type")
    if item.role is None:
        raise ApiError(f"Missing required parameter: '{path}.role'.", param=f"{path}.role", code="missing_required_parameter")
    if item.role not in _ROLES:
        raise ApiError(f"{path}.role must be one of {', '.join(_ROLES)}, got {item.role[:100]!r}.", param=f"{path}.role")
    if item.content is None:
        raise ApiError(f"Missing required parameter: '{path}.content'.", param=f"{path}.content", code="missing_required_parameter")
    if isinstance(item.content, str):
        return _message(item.role, [item.content])
    return _message(item.role, [_part_text(part, f"{path}.content[{index}]") for index, part in enumerate(item.content)])


def _part_text(part: InputPart, path: str) -> str:
    name = "refusal" if part.type == "refusal" else "text"
    if name == "text" and part.type not in _TEXT_PARTS:
        raise ApiError(f"{path}: parts of type {part.type[:100]!r} are not supported by this server; only text is.", param=f"{path}.type")
    text = part.refusal if name == "refusal" else part.text
    if text is None:
        raise ApiError(f"Missing required parameter: '{path}.{name}'.", param=f"{path}.{name}", code="missing_required_parameter")
    return text


def _message(role: str, texts: list[str]) -> InputMessage:
    parts: list[InputText | OutputText] = [OutputText(text=text) if role == "assistant" else InputText(text) for text in texts]
    return InputMessage(id=new_message_id(), role=cast(Role, role), content=parts)


def new_message_id() -> str:
    return f"msg_{secrets.token_hex(16)}"
