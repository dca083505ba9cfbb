"""The tools of a chat: what a request offers and asks for, checked, and as a template takes them."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.structured_outputs import check_strict, schema_text

MAX_TOOLS = 128


class FunctionDefinition(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`parameters` is a JSON schema of the arguments, by default that of an empty object. `strict` asks for arguments that keep to it."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}\Z")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def schema(self) -> dict[str, Any]:
        return self.parameters or {"type": "object", "properties": {}}


class Tool(msgspec.Struct, kw_only=True):
    function: FunctionDefinition
    type: Literal["function"]


class FunctionName(msgspec.Struct):
    name: str


class NamedToolChoice(msgspec.Struct, kw_only=True):
    """The model must call this function."""

    function: FunctionName
    type: Literal["function"]


ToolChoice = Literal["none", "auto", "required"] | NamedToolChoice
Tools = Annotated[list[Tool], Meta(min_length=1, max_length=MAX_TOOLS)]


def check_tools(tools: Sequence[Tool] | None, choice: ToolChoice | None) -> None:
    """Raises ApiError (400) for two functions of one name, a strict one that is too large or leaves something open, and a choice of what is not offered."""
    for index, tool in enumerate(tools or ()):
        if tool.function.strict and tool.function.parameters:
            param = f"tools[{index}].function.parameters"
            schema_text(tool.function.parameters, param)
            check_strict(tool.function.name, tool.function.parameters, param)
    names = [tool.function.name for tool in tools or ()]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ApiError(f"tools[{index}].function.name: {name!r} is the name of an earlier function.", param=f"tools[{index}].function.name")
    if not names and choice not in (None, "none", "auto"):
        raise ApiError("tool_choice is only allowed when tools are given.", param="tool_choice")
    if isinstance(choice, NamedToolChoice) and choice.function.name not in names:
        raise ApiError(f"tool_choice names the function {choice.function.name[:100]!r}, which is not in tools.", param="tool_choice")


def offered_tools(tools: Sequence[Tool] | None, choice: ToolChoice | None) -> Sequence[Tool]:
    """Those that the model is told of: none where it is to call none."""
    return () if tools is None or choice == "none" else tools


def callable_tools(tools: Sequence[Tool] | None, choice: ToolChoice | None) -> Sequence[Tool]:
    """Those of the offered ones that the choice allows."""
    offered = offered_tools(tools, choice)
    return [tool for tool in offered if tool.function.name == choice.function.name] if isinstance(choice, NamedToolChoice) else offered


def is_call_required(choice: ToolChoice | None) -> bool:
    return choice == "required" or isinstance(choice, NamedToolChoice)


def template_tools(tools: Sequence[Tool]) -> list[dict[str, Any]] | None:
    """As chat templates read them. `strict` is for the server, not for the model."""
    return [{"type": "function", "function": _template_function(tool.function)} for tool in tools] or None


def _template_function(function: FunctionDefinition) -> dict[str, Any]:
    described = {} if function.description is None else {"description": function.description}
    return {"name": function.name, **described, "parameters": function.schema}
