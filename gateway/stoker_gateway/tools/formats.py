"""The formats by name, and which of them a model's template speaks."""

from stoker_gateway.tools.deepseek_v3 import DEEPSEEK_V3, DEEPSEEK_V31
from stoker_gateway.tools.format import ToolFormat
from stoker_gateway.tools.harmony import HARMONY
from stoker_gateway.tools.hermes import HERMES
from stoker_gateway.tools.llama3_json import LLAMA3_JSON
from stoker_gateway.tools.mistral import MISTRAL, MISTRAL_V11
from stoker_gateway.tools.pythonic import PYTHONIC

TOOL_FORMATS = {tool_format.name: tool_format for tool_format in (HERMES, LLAMA3_JSON, PYTHONIC, MISTRAL, MISTRAL_V11, DEEPSEEK_V3, DEEPSEEK_V31, HARMONY)}

_SIGNS: tuple[tuple[ToolFormat, tuple[str, ...]], ...] = (
    (HARMONY, ("<|channel|>", "<|call|>")),
    (MISTRAL_V11, ("[TOOL_CALLS]", "[ARGS]")),
    (MISTRAL, ("[TOOL_CALLS]",)),
    (DEEPSEEK_V3, ("<｜tool▁sep｜>", "```json")),
    (DEEPSEEK_V31, ("<｜tool▁sep｜>",)),
    (HERMES, ("<tool_call>", "arguments")),
    (PYTHONIC, ("<|python_start|>",)),
    (LLAMA3_JSON, ("<|start_header_id|>", "parameters")),
)
"""A template that has all of a format's signs, and of no format before it, has that format."""
_OTHERS = ("<function=", "<arg_key>", "<parameter=")
"""Signs of formats that have <tool_call>, too, and are not known here."""


def detect_tool_format(template: str) -> ToolFormat | None:
    """The format that the template tells the model to write; None where that is not known."""
    if any(sign in template for sign in _OTHERS):
        return None
    return next((tool_format for tool_format, signs in _SIGNS if all(sign in template for sign in signs)), None)
