"""Builds a message of the Messages API out of the engine's outputs, whole or as events."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from stoker_engine.errors import EngineGenerateError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.outputs import CompletionOutput, RequestOutput
from stoker_gateway.anthropic.protocol import (
    BlockTextDelta,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Message,
    MessageDelta,
    MessageEvent,
    MessageStart,
    MessageStop,
    MessageUsage,
    StopDelta,
    TextBlock,
    make_usage,
)
from stoker_gateway.api.generation import aborted, finish_name
from stoker_gateway.openai.protocol import encode
from stoker_gateway.openai.streaming import named_event


class MessageAnswer:
    """One answer, of one block of text."""

    def __init__(self, message_id: str, model: str) -> None:
        self._id = message_id
        self._model = model
        self._has_begun = False
        self._is_over = False

    def whole(self, output: RequestOutput) -> Message:
        """Raises EngineNotReadyError for an answer that was cut short: half of it is not to pass for the whole."""
        (choice,) = output.outputs
        stop = _stop(choice)
        return self._message([TextBlock(text=choice.text)] if choice.text else [], stop, _usage(output))

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
        stop = _stop(choice)
        if not self._has_begun:
            self._has_begun = True
            yield MessageStart(self._message([], None, _usage(output)))
            yield ContentBlockStart(0, TextBlock())
        if choice.text:
            yield ContentBlockDelta(0, BlockTextDelta(choice.text))
        if stop is not None:
            self._is_over = True
            yield ContentBlockStop(0)
            yield MessageDelta(stop, _usage(output))
            yield MessageStop()

    def _message(self, content: list[TextBlock], stop: StopDelta | None, usage: MessageUsage) -> Message:
        return Message(
            id=self._id,
            model=self._model,
            content=content,
            stop_reason=None if stop is None else stop.stop_reason,
            stop_sequence=None if stop is None else stop.stop_sequence,
            usage=usage,
        )


def _usage(output: RequestOutput) -> MessageUsage:
    return make_usage(len(output.prompt_token_ids), output.num_cached_tokens, output.num_output_tokens)


def _stop(choice: CompletionOutput) -> StopDelta | None:
    """None while it goes on. Raises EngineError for a choice that failed or was cut short."""
    if finish_name(choice) is None:
        return None
    if choice.finish_reason is FinishReason.ABORT:
        raise aborted()
    if choice.finish_reason is FinishReason.LENGTH:
        return StopDelta("max_tokens", None)
    if isinstance(choice.stop_reason, str):
        return StopDelta("stop_sequence", choice.stop_reason)
    return StopDelta("end_turn", None)
