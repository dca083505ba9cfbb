"""ChatFormat: how the served model writes reasoning and tool calls, by the flags or by its chat template."""

from dataclasses import dataclass
from pathlib import Path

from stoker_engine.errors import ConfigError
from stoker_engine.frontend.template_environment import template_fault
from stoker_engine.tokenizer import Tokenizer
from stoker_gateway.api.config import ApiConfig
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.reasoning.detect import THINK_TAGS, detect_think_tags
from stoker_gateway.reasoning.think import ThinkTags
from stoker_gateway.tools.format import ToolFormat
from stoker_gateway.tools.formats import TOOL_FORMATS, detect_tool_format
from stoker_gateway.tools.harmony import HARMONY


@dataclass(slots=True, frozen=True)
class ChatFormat:
    """`tools` and `think` are None where the model is not known to have any. In harmony, which `tools` says, reasoning is part of the format."""

    tools: ToolFormat | None
    think: ThinkTags | None
    template: str

    @property
    def takes_tools(self) -> bool:
        return "tools" in self.template

    @property
    def is_harmony(self) -> bool:
        return self.tools is HARMONY

    def effort_kwargs(self, effort: str | None) -> dict[str, object]:
        """What tells the template how much to reason. Raises ApiError (400) where it cannot be told."""
        if effort is None:
            return {}
        if "reasoning_effort" in self.template:
            return {"reasoning_effort": effort}
        if "enable_thinking" in self.template:
            return {"enable_thinking": effort != "none"}
        raise ApiError("reasoning_effort is not supported by this model: its chat template cannot be told how much to reason.", param="reasoning_effort")


def make_chat_format(config: ApiConfig, tokenizer: Tokenizer) -> ChatFormat:
    template = tokenizer.tool_template or tokenizer.chat_template or ""
    tools = detect_tool_format(template) if config.tool_call_parser == "auto" else TOOL_FORMATS.get(config.tool_call_parser)
    if config.reasoning_parser == "harmony":
        tools = HARMONY
    think = detect_think_tags(template) if config.reasoning_parser == "auto" else THINK_TAGS.get(config.reasoning_parser)
    return ChatFormat(tools, None if tools is HARMONY else think, template)


def apply_chat_template(config: ApiConfig, tokenizer: Tokenizer) -> None:
    """Puts the file that `--chat-template` names in the place of the model's own template. Raises ConfigError where it cannot be used."""
    if config.chat_template is None:
        return
    try:
        template = Path(config.chat_template).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--chat-template {config.chat_template}: cannot be read: {error}") from error
    if (fault := template_fault(template)) is not None:
        raise ConfigError(f"--chat-template {config.chat_template}: not a Jinja template: {fault}")
    tokenizer.replace_chat_template(template)
