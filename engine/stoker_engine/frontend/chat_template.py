"""Renders messages with the model's own Jinja template, so that prompts equal those of transformers' `apply_chat_template`.

transformers itself would double the time that an api takes to start.
"""

from functools import cached_property
from typing import Any

import jinja2

from stoker_engine.errors import ParameterError
from stoker_engine.frontend.template_environment import make_environment

TemplateMessage = dict[str, str]
"""`role` and `content`; `name` and, under the two names that templates read, the reasoning where the message has them."""

_TEMPLATE_ERRORS = (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)
"""What a template's code can raise: its own errors, and Python's where it treats a message as something that it is not."""

_RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"})
_CONTINUE_HERE = "\ue000continue here\ue001 "
"""Marks the end of a final message that is to be continued. The space tells whether the template trims messages."""


class ChatTemplate:
    """One model's template. `special_tokens` are the names a template may use, such as bos_token. Safe to use from several threads."""

    def __init__(self, source: str, special_tokens: dict[str, str]) -> None:
        self._source = source
        self._special_tokens = special_tokens
        self._knows_developer = "developer" in source

    def render(self, messages: list[TemplateMessage], *, add_generation_prompt: bool, continue_final_message: bool, template_kwargs: dict[str, Any]) -> str:
        """The prompt's text. Raises ParameterError with the template's own message where the template refuses or fails."""
        if clash := _RESERVED.intersection(template_kwargs):
            raise ParameterError(f"chat_template_kwargs must not hold {min(clash)!r}.", "chat_template_kwargs")
        if not self._knows_developer:
            messages = _developer_as_system(messages)
        variables = {**self._special_tokens, **template_kwargs, "tools": None, "documents": None, "add_generation_prompt": add_generation_prompt}
        if not continue_final_message:
            return self._render(messages, variables)
        final = messages[-1]
        marked = [*messages[:-1], {**final, "content": final["content"] + _CONTINUE_HERE}]
        return _cut_at_mark(self._render(marked, variables), final["content"])

    def _render(self, messages: list[TemplateMessage], variables: dict[str, Any]) -> str:
        try:
            return self._template.render({**variables, "messages": messages})
        except _TEMPLATE_ERRORS as error:
            raise ParameterError(f"The model's chat template does not accept these messages: {error}", "messages") from error

    @cached_property
    def _template(self) -> jinja2.Template:
        return make_environment().from_string(self._source)


def _cut_at_mark(rendered: str, content: str) -> str:
    """The prompt up to the end of the final message."""
    end = rendered.rfind(_CONTINUE_HERE.rstrip())
    if end < 0 or content.strip() not in rendered:
        raise ParameterError("The model's chat template does not show the final message as it is; it cannot be continued.", "continue_final_message")
    prompt = rendered[:end]
    return prompt if rendered.startswith(_CONTINUE_HERE, end) else prompt.rstrip()


def _developer_as_system(messages: list[TemplateMessage]) -> list[TemplateMessage]:
    """For templates that do not know the role developer: it becomes system, and the system messages at the start become one.

    Many templates take one system message, at the start, and drop or refuse a second.
    """
    if all(message["role"] != "developer" for message in messages):
        return messages
    renamed = [{**message, "role": "system"} if message["role"] == "developer" else message for message in messages]
    num_leading = next((index for index, message in enumerate(renamed) if message["role"] != "system"), len(renamed))
    if num_leading < 2:
        return renamed
    content = "\n\n".join(message["content"] for message in renamed[:num_leading])
    return [{"role": "system", "content": content}, *renamed[num_leading:]]
