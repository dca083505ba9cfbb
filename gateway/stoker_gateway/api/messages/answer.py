"""Builds a message of the Messages API out of the engine's outputs, whole or as events."""

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from typing import Any

import msgspec

from stoker_engine.errors import EngineGenerateError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.outputs import CompletionOutput, RequestOutput
from stoker_gateway.anthropic.protocol import (
    BlockTextDelta,
    ContentBlock,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    InputJsonDelta,
    Message,
    MessageDelta,
    MessageEvent,
    MessageStart,
    MessageStop,
    MessageUsage,
    StopDelta,
    TextBlock,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
    make_usage,
)
from stoker_gateway.api.chat_plan import ChatPlan
from stoker_gateway.api.choice_reader import TOOL_CALLS, AnswerPart, Arguments, Call, ChoiceReader
from stoker_gateway.api.generation import aborted
from stoker_gateway.openai.protocol import encode
from stoker_gateway.openai.streaming import named_event
from stoker_gateway.tools.parts import Content, Reasoning

_END_TURN = StopDelta("end_turn", None)


class MessageAnswer:
    """One answer: thinking, text and calls, each a block, as they come."""

    def __init__(self, message_id: str, model: str, plan: ChatPlan) -> None:
        self._id = message_id
        self._model = model
        self._reader = ChoiceReader(plan)
        self._has_begun = False
        self._num_blocks = 0
        self._open: type[ContentBlock] | None = None
        self._is_over = False

    def whole(self, output: RequestOutput) -> Message:
        """Raises EngineNotReadyError for an answer that was cut short: half of it is not to pass for the whole."""
        (choice,) = output.outputs
        content = _whole_blocks(self._reader.parts(choice))
        return self._message(content, self._stop(choice), _usage(output))

    async def stream(self, outputs: AsyncGenerator[RequestOutput]) -> AsyncGenerator[bytes]:
        """The events of one output go together. Raises EngineError, before or after the first."""
        async with aclosing(outputs):
            async for output in outputs:
                if data := b"".join(named_event(str(event.__struct_config__.tag), encode(event)) for event in self._events(output)):
                    yield data
        if not self._is_over:
            raise EngineGenerateError("The stream ended before its answer did.")

    def _events(self, output: RequestOutput) -> Iterator[MessageEvent]:
        (choice,) = output.outputs
        parts = self._reader.parts(choice)
        stop = self._stop(choice)
        if not self._has_begun:
            self._has_begun = True
            yield MessageStart(self._message([], None, _usage(output)))
        for part in parts:
            yield from self._block_events(part)
        if stop is not None:
            self._is_over = True
            yield from self._close()
            yield MessageDelta(stop, _usage(output))
            yield MessageStop()

    def _block_events(self, part: AnswerPart) -> Iterator[MessageEvent]:
        match part:
            case Reasoning(text):
                yield from self._in_block(ThinkingBlock())
                yield ContentBlockDelta(self._num_blocks - 1, ThinkingDelta(text))
            case Content(text):
                yield from self._in_block(TextBlock())
                yield ContentBlockDelta(self._num_blocks - 1, BlockTextDelta(text))
            case Call(_, call_id, name):
                yield from self._close()
                yield from self._in_block(ToolUseBlock(id=call_id, name=name))
            case Arguments(_, text):
                yield ContentBlockDelta(self._num_blocks - 1, InputJsonDelta(text))

    def _in_block(self, empty: ContentBlock) -> Iterator[MessageEvent]:
        """Nothing where a block of this kind is open."""
        if self._open is type(empty):
            return
        yield from self._close()
        self._open = type(empty)
        self._num_blocks += 1
        yield ContentBlockStart(self._num_blocks - 1, empty)

    def _close(self) -> Iterator[MessageEvent]:
        if self._open is not None:
            self._open = None
            yield ContentBlockStop(self._num_blocks - 1)

    def _stop(self, choice: CompletionOutput) -> StopDelta | None:
        """After its parts. None while it goes on. Raises EngineError for a choice that failed or was cut short."""
        name = self._reader.finish_name(choice)
        if name is None:
            return None
        if choice.finish_reason is FinishReason.ABORT:
            raise aborted()
        if name == TOOL_CALLS:
            return StopDelta("tool_use", None)
        if choice.finish_reason is FinishReason.LENGTH:
            return StopDelta("max_tokens", None)
        return StopDelta("stop_sequence", choice.stop_reason) if isinstance(choice.stop_reason, str) else _END_TURN

    def _message(self, content: list[ContentBlock], stop: StopDelta | None, usage: MessageUsage) -> Message:
        return Message(
            id=self._id,
            model=self._model,
            content=content,
            stop_reason=None if stop is None else stop.stop_reason,
            stop_sequence=None if stop is None else stop.stop_sequence,
            usage=usage,
        )


def _whole_blocks(parts: Iterable[AnswerPart]) -> list[ContentBlock]:
    blocks: list[ContentBlock] = []
    for part in parts:
        match part:
            case Reasoning(text):
                blocks.append(ThinkingBlock(thinking=text))
            case Content(text):
                blocks.append(TextBlock(text=text))
            case Call(_, call_id, name):
                blocks.append(ToolUseBlock(id=call_id, name=name))
            case Arguments(_, text):
                if isinstance(call := blocks[-1], ToolUseBlock):
                    call.input = _input(text)
    return blocks


def _input(arguments: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"arguments": arguments}


def _usage(output: RequestOutput) -> MessageUsage:
    return make_usage(len(output.prompt_token_ids), output.num_cached_tokens, output.num_output_tokens)
