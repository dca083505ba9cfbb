"""Renders messages with the model's own Jinja template, in transformers' sandbox, so that prompts equal those of `apply_chat_template`."""

import inspect
import threading
from typing import Any

import jinja2
from transformers.utils.chat_template_utils import render_jinja_template

from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.messages import TemplateMessage, developer_as_system

_TEMPLATE_ERRORS = (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)
"""What a template's code can raise: its own errors, and Python's where it treats a message as something that it is not."""

_RESERVED = frozenset(inspect.signature(render_jinja_template).parameters) | {"messages"}


class ChatTemplate:
    """One model's template. `special_tokens` are the names a template may use, such as bos_token."""

    def __init__(self, source: str, special_tokens: dict[str, str]) -> None:
        self._source = source
        self._special_tokens = special_tokens
        self._knows_developer = "developer" in source
        # Jinja compiles at the first use; two threads must not do it at once.
        self._lock = threading.Lock()

    def render(self, messages: list[TemplateMessage], *, add_generation_prompt: bool, continue_final_message: bool, template_kwargs: dict[str, Any]) -> str:
        """The prompt's text. Raises ApiError (400) with the template's own message where the template refuses or fails."""
        if clash := _RESERVED.intersection(template_kwargs):
            raise ApiError(f"chat_template_kwargs must not hold {min(clash)!r}.", param="chat_template_kwargs")
        if not self._knows_developer:
            messages = developer_as_system(messages)
        variables: dict[str, Any] = {**self._special_tokens, **template_kwargs}
        try:
            with self._lock:
                rendered = render_jinja_template(
                    [messages],
                    chat_template=self._source,
                    add_generation_prompt=add_generation_prompt,
                    continue_final_message=continue_final_message,
                    **variables,
                )
        except _TEMPLATE_ERRORS as error:
            raise ApiError(f"The model's chat template does not accept these messages: {error}", param="messages") from error
        return str(rendered[0][0])
