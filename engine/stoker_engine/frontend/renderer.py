"""Renderer: what a caller writes, texts, token ids or a conversation, as prompts for the InputProcessor."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from stoker_engine.errors import ParameterError
from stoker_engine.frontend.chat_template import ChatTemplate
from stoker_engine.frontend.template_messages import TemplateMessage
from stoker_engine.tokenizer import Tokenizer

__all__ = ["Prompt", "Renderer", "TemplateMessage", "TemplatedPrompt", "prompt_text", "text_of"]


class TemplatedPrompt(msgspec.Struct, frozen=True):
    """A text that a chat template wrote: its special tokens count as such, and none is added."""

    text: str


class _CalledFunction(msgspec.Struct):
    name: str
    arguments: dict[str, Any] | str


class _Call(msgspec.Struct):
    """What templates read of a call."""

    function: _CalledFunction


Prompt = str | list[int] | TemplatedPrompt


def prompt_text(prompt: Prompt) -> str | None:
    """None for token ids. Raises ParameterError for what is no prompt."""
    return None if isinstance(prompt, list) else text_of(prompt)


def text_of(prompt: str | TemplatedPrompt) -> str:
    """Raises ParameterError for what is neither."""
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, TemplatedPrompt):
        raise ParameterError(f"prompt must be a text or a list of token ids, got a {type(prompt).__name__}", "prompt")
    return prompt.text


class Renderer:
    """One model's prompts. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        names = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
        tokens = {name: token for name, token in names.items() if token is not None}
        self._template = None if tokenizer.chat_template is None else ChatTemplate(tokenizer.chat_template, tokens)
        self._tool_template = self._template if tokenizer.tool_template is None else ChatTemplate(tokenizer.tool_template, tokens)

    def render_cmpl(self, prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
        """One prompt or several, as a list. What the prompts hold is neither copied nor looked at: there may be millions of ids."""
        if isinstance(prompts, str | TemplatedPrompt):
            return [prompts]
        if not isinstance(prompts, list | tuple) or not prompts:
            raise ParameterError("prompt must be a text, token ids or a non-empty list of such", "prompt")
        if isinstance(prompts[0], int):
            return [cast("list[int]", prompts if isinstance(prompts, list) else list(prompts))]
        for prompt in prompts:
            if not isinstance(prompt, str | list | TemplatedPrompt):
                raise ParameterError(f"prompt must hold texts or lists of token ids, got a {type(prompt).__name__}", "prompt")
        return cast("list[Prompt]", list(prompts))

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> TemplatedPrompt:
        """The prompt of a conversation, by the model's own template; with `tools`, by that for tools where there are two.

        By default it asks for an answer, unless the final message is to be continued.

        Raises ParameterError where the model has no template, or it refuses the messages or the arguments.
        """
        template = self._tool_template if tools else self._template
        if template is None:
            raise ParameterError("The model has no chat template; use plain prompts.", "messages")
        text = template.render(
            _checked(messages),
            add_generation_prompt=not continue_final_message if add_generation_prompt is None else add_generation_prompt,
            continue_final_message=continue_final_message,
            template_kwargs=dict(template_kwargs or {}),
            tools=[dict(tool) for tool in tools] if tools else None,
        )
        return TemplatedPrompt(text)


def _checked(messages: Sequence[Mapping[str, Any]]) -> list[TemplateMessage]:
    if not messages or isinstance(messages, str | Mapping):
        raise ParameterError("messages must be a non-empty list of messages", "messages")
    return [_checked_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _checked_message(message: Mapping[str, Any], path: str) -> TemplateMessage:
    if not isinstance(message, Mapping):
        raise ParameterError(f"{path} must be a message with role and content, got a {type(message).__name__}", "messages")
    calls = message.get("tool_calls")
    for name in ("role",) if calls else ("role", "content"):
        if name not in message:
            raise ParameterError(f"{path} has no {name}", "messages")
    for name, value in message.items():
        if name == "tool_calls" or (calls and name == "content" and value is None):
            continue
        if not isinstance(value, str):
            raise ParameterError(f"{path}.{name} must be a text, got a {type(value).__name__}", "messages")
    if calls is not None:
        _check_calls(calls, f"{path}.tool_calls")
    return dict(message)


def _check_calls(calls: object, path: str) -> None:
    try:
        msgspec.convert(calls, list[_Call])
    except msgspec.ValidationError as error:
        raise ParameterError(f"{path}: {error}", "messages") from None
