"""Chat messages of the OpenAI API as a template takes them: plain texts, calls with their arguments as objects, and answers to calls."""

from typing import Any

import msgspec

from stoker_engine.frontend.renderer import TemplateMessage
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.request import ChatMessage, ContentPart, MessageToolCall

ROLES = ("system", "developer", "user", "assistant", "tool")


def template_messages(messages: list[ChatMessage]) -> list[TemplateMessage]:
    """Checks roles, contents and the ids of calls, and joins the text parts of each message by newlines. Raises ApiError (400) naming the message."""
    call_ids = set[str]()
    converted = []
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        _check(message, path, call_ids)
        call_ids.update(call.id for call in message.tool_calls or ())
        converted.append(_template_message(message, path))
    return converted


def _template_message(message: ChatMessage, path: str) -> TemplateMessage:
    converted: TemplateMessage = {"role": message.role, "content": _text(message, path)}
    if message.name is not None:
        converted["name"] = message.name
    reasoning = message.reasoning if message.reasoning_content is None else message.reasoning_content
    if reasoning is not None:
        converted["reasoning_content"] = converted["thinking"] = reasoning
    if message.tool_calls:
        converted["tool_calls"] = [_template_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        converted["tool_call_id"] = message.tool_call_id
    return converted


def _template_call(call: MessageToolCall) -> dict[str, Any]:
    arguments = call.function.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": _parsed(arguments)}}


def _parsed(arguments: str | dict[str, Any]) -> str | dict[str, Any]:
    """The object that the text is, an empty one for no text. What a model wrote that is no object stays a text: its conversation must go on."""
    if isinstance(arguments, dict):
        return arguments
    try:
        return msgspec.json.decode(arguments.strip() or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return arguments


def _check(message: ChatMessage, path: str, call_ids: set[str]) -> None:
    if message.role not in ROLES:
        raise ApiError(f"{path}.role must be one of {', '.join(ROLES)}, got {message.role[:100]!r}.", param=f"{path}.role")
    if message.role == "tool":
        _check_answer(message, path, call_ids)
    for name, role in (("tool_calls", "assistant"), ("tool_call_id", "tool")):
        if getattr(message, name) and message.role != role:
            raise ApiError(f"{path}.{name} is only for messages of the role {role}, got role {message.role}.", param=f"{path}.{name}")
    for name in ("function_call", "audio"):
        if getattr(message, name):
            raise ApiError(f"{path}.{name} is not supported by this server.", param=f"{path}.{name}")


def _check_answer(message: ChatMessage, path: str, call_ids: set[str]) -> None:
    name = f"{path}.tool_call_id"
    if message.tool_call_id is None:
        raise ApiError(f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")
    if message.tool_call_id not in call_ids:
        raise ApiError(f"{path}: tool_call_id matches no earlier tool call; it must be the id of one of an assistant message's tool_calls.", param=name)


def _text(message: ChatMessage, path: str) -> str:
    if isinstance(message.content, str):
        return message.content
    if message.content is not None:
        return "\n".join(_part_text(part, f"{path}.content[{index}]") for index, part in enumerate(message.content))
    if message.role == "assistant":
        return ""
    raise ApiError(f"Missing required parameter: '{path}.content'.", param=f"{path}.content", code="missing_required_parameter")


def _part_text(part: ContentPart, path: str) -> str:
    if part.type == "refusal" and part.refusal is not None:
        return part.refusal
    if part.type != "text":
        raise ApiError(f"{path}: parts of type {part.type[:100]!r} are not supported by this server; only text is.", param=f"{path}.type")
    if part.text is None:
        raise ApiError(f"Missing required parameter: '{path}.text'.", param=f"{path}.text", code="missing_required_parameter")
    return part.text
