"""Conversations as templates differ in wanting them: roles, contents and the arguments of calls."""

from collections.abc import Callable, Sequence
from typing import Any

TemplateMessage = dict[str, Any]
"""`role` and `content`, and what else a template may read: `name`, `tool_calls`, `tool_call_id`, the reasoning under two names."""


def developer_as_system(messages: list[TemplateMessage]) -> list[TemplateMessage]:
    """For templates that do not know the role developer: it becomes system, and the system messages at the start become one.

    Many templates take one system message, at the start, and drop or refuse a second.
    """
    if all(message["role"] != "developer" for message in messages):
        return messages
    renamed = [{**message, "role": "system"} if message["role"] == "developer" else message for message in messages]
    num_leading = next((index for index, message in enumerate(renamed) if message["role"] != "system"), len(renamed))
    if num_leading < 2:
        return renamed
    content = "\n\n".join(str(message["content"]) for message in renamed[:num_leading] if message.get("content"))
    return [{"role": "system", "content": content}, *renamed[num_leading:]]


def content_as_parts(messages: list[TemplateMessage]) -> list[TemplateMessage]:
    """For templates that take lists of parts and no texts."""
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]} if isinstance(message.get("content"), str) else message for message in messages
    ]


def missing_content_as(content: str | None, messages: list[TemplateMessage]) -> list[TemplateMessage]:
    """What a message that only calls tools has as its content: some templates tell it by a null, others add to a text."""
    return [{**message, "content": content} if message.get("tool_calls") and not message.get("content") else message for message in messages]


def has_calls(messages: Sequence[TemplateMessage]) -> bool:
    return any(message.get("tool_calls") for message in messages)


def arguments_as_text(messages: list[TemplateMessage], dump: Callable[[object], str]) -> list[TemplateMessage]:
    """For templates that put the arguments of a call into the prompt as they are."""
    return [
        {**message, "tool_calls": [_call_with_text(call, dump) for call in message["tool_calls"]]} if message.get("tool_calls") else message
        for message in messages
    ]


def _call_with_text(call: dict[str, Any], dump: Callable[[object], str]) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    return {**call, "function": {**function, "arguments": arguments if isinstance(arguments, str) else dump(arguments)}}
