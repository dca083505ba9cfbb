"""Renders messages with the model's own Jinja template, so that prompts equal those of transformers' `apply_chat_template`.

transformers itself would double the time that an api takes to start.
"""

import re
from functools import cached_property
from typing import Any

import jinja2

from stoker_engine.errors import ParameterError
from stoker_engine.frontend.template_environment import make_environment, tojson
from stoker_engine.frontend.template_messages import (
    TemplateMessage,
    arguments_as_text,
    content_as_parts,
    developer_as_system,
    has_calls,
    missing_content_as,
)

_TEMPLATE_ERRORS = (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)
"""What a template's code can raise: its own errors, and Python's where it treats a message as something that it is not."""

_RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"})
_CONTINUE_HERE = "\ue000continue here\ue001 "
"""Marks the end of a final message that is to be continued. The space tells whether the template trims messages."""
_PROBE = "\ue000probe\ue001"
_NULL_CONTENT = re.compile(r"""content['"\]]*\s+is\s+(none|None|null)\b""")


class ChatTemplate:
    """One model's template. `special_tokens` are the names a template may use, such as bos_token. Safe to use from several threads."""

    def __init__(self, source: str, special_tokens: dict[str, str]) -> None:
        self._source = source
        self._special_tokens = special_tokens
        self._knows_developer = "developer" in source
        self._missing_content = None if _NULL_CONTENT.search(source) else ""

    def render(
        self,
        messages: list[TemplateMessage],
        *,
        add_generation_prompt: bool,
        continue_final_message: bool,
        template_kwargs: dict[str, Any],
        tools: list[dict[str, Any]] | None = None,
    ) -> str:
        """The prompt's text. Raises ParameterError with the template's own message where the template refuses or fails."""
        if clash := _RESERVED.intersection(template_kwargs):
            raise ParameterError(f"chat_template_kwargs must not hold {min(clash)!r}.", "chat_template_kwargs")
        messages = missing_content_as(self._missing_content, messages)
        if not self._knows_developer:
            messages = developer_as_system(messages)
        variables = {**self._special_tokens, **template_kwargs, "tools": tools, "documents": None, "add_generation_prompt": add_generation_prompt}
        if not continue_final_message:
            return self._render(messages, variables)
        final = messages[-1]
        if not isinstance(final["content"], str):
            raise ParameterError("The final message has no text; it cannot be continued.", "continue_final_message")
        marked = [*messages[:-1], {**final, "content": final["content"] + _CONTINUE_HERE}]
        return _cut_at_mark(self._render(marked, variables), final["content"])

    def _render(self, messages: list[TemplateMessage], variables: dict[str, Any]) -> str:
        """Calls' arguments are objects, as transformers documents; a template that fails with them may be one that adds texts."""
        if self._takes_parts:
            messages = content_as_parts(messages)
        try:
            return self._run(messages, variables)
        except _TEMPLATE_ERRORS as error:
            refusal = ParameterError(f"The model's chat template does not accept these messages: {error}", "messages")
            if not has_calls(messages):
                raise refusal from error
        try:
            return self._run(arguments_as_text(messages, tojson), variables)
        except _TEMPLATE_ERRORS as error:
            raise refusal from error

    def _run(self, messages: list[TemplateMessage], variables: dict[str, Any]) -> str:
        return self._template.render({**variables, "messages": messages})

    @cached_property
    def _template(self) -> jinja2.Template:
        return make_environment().from_string(self._source)

    @cached_property
    def _takes_parts(self) -> bool:
        """Whether the template shows parts and does not show texts."""
        message = {"role": "user", "content": _PROBE}
        return not self._shows_probe([message]) and self._shows_probe(content_as_parts([message]))

    def _shows_probe(self, messages: list[TemplateMessage]) -> bool:
        try:
            return _PROBE in self._run(messages, {**self._special_tokens, "tools": None, "documents": None, "add_generation_prompt": False})
        except _TEMPLATE_ERRORS:
            return False


def _cut_at_mark(rendered: str, content: str) -> str:
    """The prompt up to the end of the final message."""
    end = rendered.rfind(_CONTINUE_HERE.rstrip())
    if end < 0 or content.strip() not in rendered:
        raise ParameterError("The model's chat template does not show the final message as it is; it cannot be continued.", "continue_final_message")
    prompt = rendered[:end]
    return prompt if rendered.startswith(_CONTINUE_HERE, end) else prompt.rstrip()
