"""What a chat completion makes of an answer's parts: deltas, and the message of a whole answer. It keeps no order among texts and calls."""

from collections.abc import Iterable

from msgspec import UNSET

from stoker_gateway.api.choice_reader import AnswerPart, Arguments, Call
from stoker_gateway.openai.protocol import ChatDelta, ChatMessageResponse, FunctionCall, FunctionCallDelta, ToolCall, ToolCallDelta
from stoker_gateway.tools.parts import Content, Reasoning


def chat_delta(parts: Iterable[AnswerPart]) -> ChatDelta:
    """Of parts of which no two of a kind follow each other."""
    contents: list[str] = []
    reasonings: list[str] = []
    calls: list[ToolCallDelta] = []
    for part in parts:
        match part:
            case Content(text):
                contents.append(text)
            case Reasoning(text):
                reasonings.append(text)
            case Call(index, call_id, name):
                calls.append(ToolCallDelta(index, FunctionCallDelta(arguments="", name=name), id=call_id, type="function"))
            case Arguments(index, text):
                if not calls:
                    calls.append(ToolCallDelta(index, FunctionCallDelta(arguments="")))
                calls[-1].function.arguments += text
    reasoning = "".join(reasonings) or UNSET
    return ChatDelta(content="".join(contents) or UNSET, reasoning=reasoning, reasoning_content=reasoning, tool_calls=calls or UNSET)


def is_empty(delta: ChatDelta) -> bool:
    return delta.content is UNSET and delta.reasoning is UNSET and delta.tool_calls is UNSET


def whole_message(delta: ChatDelta) -> ChatMessageResponse:
    """The message of a choice whose only delta this is."""
    calls = [] if delta.tool_calls is UNSET else [_whole_call(call) for call in delta.tool_calls]
    content = None if calls else ""
    return ChatMessageResponse(
        content=content if delta.content is UNSET else delta.content,
        reasoning_content=delta.reasoning,
        reasoning=delta.reasoning,
        tool_calls=calls or UNSET,
    )


def _whole_call(call: ToolCallDelta) -> ToolCall:
    name = "" if call.function.name is UNSET else call.function.name
    return ToolCall("" if call.id is UNSET else call.id, FunctionCall(name, call.function.arguments))
