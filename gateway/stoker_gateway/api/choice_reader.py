"""ChoiceReader: one choice's text as deltas of reasoning, content and tool calls."""

from collections.abc import Iterable

import msgspec
from msgspec import UNSET

from stoker_engine.finish_reason import FinishReason
from stoker_engine.outputs import CompletionOutput
from stoker_gateway.api.chat_plan import ChatPlan
from stoker_gateway.api.generation import finish_name
from stoker_gateway.api.request_record import current_record
from stoker_gateway.openai.protocol import ChatDelta, ChatMessageResponse, FunctionCall, FunctionCallDelta, ToolCall, ToolCallDelta
from stoker_gateway.tools.parts import CallArguments, CallBegin, Content, Part, Reasoning

TOOL_CALLS = "tool_calls"


class ChoiceReader:
    """Reads a choice's outputs in order: `delta` is what each adds. Joined, the deltas are the same however the text was cut into outputs."""

    def __init__(self, plan: ChatPlan) -> None:
        self._plan = plan
        self._parser = None if plan.make_parser is None else plan.make_parser()
        self._num_calls = 0
        self._arguments: list[str] = []  # of the last call
        self._is_dropping = False

    def delta(self, output: CompletionOutput) -> ChatDelta:
        if self._parser is None:
            return ChatDelta(content=output.text) if output.text else ChatDelta()
        parts = self._parser.feed(output.text)
        if output.finish_reason is not None:
            parts += self._parser.finish()
        return self._delta(parts)

    def finish_name(self, output: CompletionOutput) -> str | None:
        """After the output's delta. An answer that called is `tool_calls` unless it was cut short. Raises EngineGenerateError for a choice that failed."""
        name = finish_name(output)
        if name is not None and self._num_calls and output.finish_reason is FinishReason.STOP:
            is_cut = isinstance(output.stop_reason, str) and not _is_json("".join(self._arguments))
            name = name if is_cut else TOOL_CALLS
        if name is not None and self._parser is not None:
            self._tell_outcome(name)
        return name

    def _tell_outcome(self, name: str) -> None:
        if (record := current_record()) is not None:
            record.tool_outcomes.append("called" if name == TOOL_CALLS else "cut" if self._num_calls else "answered")

    def _delta(self, parts: Iterable[Part]) -> ChatDelta:
        delta = ChatDelta()
        for part in parts:
            match part:
                case Content(text) if text:
                    delta.content = text if delta.content is UNSET else delta.content + text
                case Reasoning(text) if text:
                    delta.reasoning = text if delta.reasoning is UNSET else delta.reasoning + text
                case CallBegin():
                    self._begin_call(delta, part)
                case CallArguments(text) if text and not self._is_dropping:
                    self._add_arguments(delta, text)
        delta.reasoning_content = delta.reasoning
        return delta

    def _begin_call(self, delta: ChatDelta, call: CallBegin) -> None:
        self._is_dropping = self._num_calls > 0 and not self._plan.allows_many
        if self._is_dropping:
            return
        begun = ToolCallDelta(
            index=self._num_calls,
            function=FunctionCallDelta(arguments="", name=call.name),
            id=call.call_id or self._plan.make_call_id(),
            type="function",
        )
        delta.tool_calls = [begun] if delta.tool_calls is UNSET else [*delta.tool_calls, begun]
        self._num_calls += 1
        self._arguments = []

    def _add_arguments(self, delta: ChatDelta, text: str) -> None:
        self._arguments.append(text)
        if delta.tool_calls is UNSET:
            delta.tool_calls = [ToolCallDelta(index=self._num_calls - 1, function=FunctionCallDelta(arguments=text))]
        else:
            delta.tool_calls[-1].function.arguments += text


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


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
