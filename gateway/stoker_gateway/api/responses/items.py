"""What a response's input holds, checked: messages, reasoning, calls and their outputs, each naming its place where it is wrong."""

import secrets
from collections.abc import Iterable
from typing import cast

from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.responses.protocol import (
    ConversationItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputMessage,
    InputText,
    OutputText,
    ReasoningItem,
    ReasoningText,
    Role,
)
from stoker_gateway.openai.responses.request import InputItem, InputPart, ResponsesRequest

_ROLES = ("system", "developer", "user", "assistant")
_TEXT_PARTS = ("input_text", "output_text", "reasoning_text", "text")


def input_items(request: ResponsesRequest, earlier: Iterable[ConversationItem]) -> list[ConversationItem]:
    """The request's own items, which follow the earlier ones. Raises ApiError (400) naming the item or part that is not supported or not complete."""
    if isinstance(request.input, str):
        return [_message("user", [request.input])]
    call_ids = {item.call_id for item in earlier if isinstance(item, FunctionCallItem)}
    items = []
    for index, given in enumerate(request.input):
        item = _item(given, f"input[{index}]")
        if isinstance(item, FunctionCallItem):
            call_ids.add(item.call_id)
        if isinstance(item, FunctionCallOutputItem) and item.call_id not in call_ids:
            raise ApiError(f"input[{index}].call_id is that of no earlier function call.", param=f"input[{index}].call_id")
        items.append(item)
    return items


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


def _item(item: InputItem, path: str) -> ConversationItem:
    match item.type:
        case "message":
            return _input_message(item, path)
        case "reasoning":
            texts = [] if item.content is None else _texts(item.content, f"{path}.content")
            return ReasoningItem(id=new_id("rs"), content=[ReasoningText(text) for text in texts], status="completed")
        case "function_call":
            name, call_id = _required(item.name, f"{path}.name"), _required(item.call_id, f"{path}.call_id")
            arguments = _required(item.arguments, f"{path}.arguments")
            return FunctionCallItem(id=new_id("fc"), call_id=call_id, name=name, arguments=arguments, status="completed")
        case "function_call_output":
            if item.output is None:
                raise _missing(f"{path}.output")
            output = "\n".join(_texts(item.output, f"{path}.output"))
            return FunctionCallOutputItem(id=new_id("fco"), call_id=_required(item.call_id, f"{path}.call_id"), output=output)
    raise ApiError(f"{path}: items of type {item.type[:100]!r} are not supported by this server.", param=f"{path}.type")


def _input_message(item: InputItem, path: str) -> InputMessage:
    role = _required(item.role, f"{path}.role")
    if role not in _ROLES:
        raise ApiError(f"{path}.role must be one of {', '.join(_ROLES)}, got {role[:100]!r}.", param=f"{path}.role")
    if item.content is None:
        raise _missing(f"{path}.content")
    return _message(role, _texts(item.content, f"{path}.content"))


def _texts(content: str | list[InputPart], path: str) -> list[str]:
    return [content] if isinstance(content, str) else [_part_text(part, f"{path}[{index}]") for index, part in enumerate(content)]


def _part_text(part: InputPart, path: str) -> str:
    if part.type == "refusal":
        return _required(part.refusal, f"{path}.refusal")
    if part.type not in _TEXT_PARTS:
        raise ApiError(f"{path}: parts of type {part.type[:100]!r} are not supported by this server; only text is.", param=f"{path}.type")
    return _required(part.text, f"{path}.text")


def _message(role: str, texts: list[str]) -> InputMessage:
    parts: list[InputText | OutputText] = [OutputText(text=text) if role == "assistant" else InputText(text) for text in texts]
    return InputMessage(id=new_id("msg"), role=cast(Role, role), content=parts)


def _required(value: str | None, path: str) -> str:
    if value is None:
        raise _missing(path)
    return value


def _missing(path: str) -> ApiError:
    return ApiError(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")
