"""Chat messages of the OpenAI API as a template takes them: plain texts."""

from stoker_engine.frontend.renderer import TemplateMessage
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.request import ChatMessage, ContentPart

ROLES = ("system", "developer", "user", "assistant")


def template_messages(messages: list[ChatMessage]) -> list[TemplateMessage]:
    """Checks roles and contents, and joins the text parts of each message by newlines. Raises ApiError (400) naming the message."""
    return [_template_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _template_message(message: ChatMessage, path: str) -> TemplateMessage:
    _check(message, path)
    converted = {"role": message.role, "content": _text(message, path)}
    if message.name is not None:
        converted["name"] = message.name
    if message.reasoning_content is not None:
        converted["reasoning_content"] = converted["thinking"] = message.reasoning_content
    return converted


def _check(message: ChatMessage, path: str) -> None:
    if message.role == "tool":
        raise ApiError(f"{path}: tool_call_id matches no earlier tool call; tool messages are not supported by this server.", param=f"{path}.tool_call_id")
    if message.role not in ROLES:
        raise ApiError(f"{path}.role must be one of {', '.join(ROLES)}, got {message.role[:100]!r}.", param=f"{path}.role")
    for name in ("tool_calls", "function_call", "audio", "tool_call_id"):
        if getattr(message, name):
            raise ApiError(f"{path}.{name} is not supported by this server.", param=f"{path}.{name}")


def _text(message: ChatMessage, path: str) -> str:
    if isinstance(message.content, str):
        return message.content
    if message.content is not None:
        return "\n".join(_part_text(part, f"{path}.content[{index}]") for index, part in enumerate(message.content))
    if message.role == "assistant":
        return ""
    raise ApiError(f"Missing required parameter: '{path}.content'.", param=f"{path}.content", code="missing_required_parameter")


def _part_text(part: ContentPart, path: str) -> str:
    if part.type != "text":
        raise ApiError(f"{path}: parts of type {part.type[:100]!r} are not supported by this server; only text is.", param=f"{path}.type")
    if part.text is None:
        raise ApiError(f"Missing required parameter: '{path}.text'.", param=f"{path}.text", code="missing_required_parameter")
    return part.text
