"""The chunks of a streamed chat completion: per choice the role, the deltas, and an empty delta with the finish reason; then usage."""

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from msgspec import UNSET, UnsetType

from stoker_engine.errors import EngineGenerateError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.outputs import CompletionOutput, RequestOutput
from stoker_gateway.api.chat_delta import chat_delta, is_empty
from stoker_gateway.api.chat_plan import ChatPlan
from stoker_gateway.api.choice_reader import ChoiceReader, with_reasoning
from stoker_gateway.api.generation import SYSTEM_FINGERPRINT, aborted
from stoker_gateway.api.logprobs import chat_logprobs
from stoker_gateway.api.stream_usage import StreamUsage
from stoker_gateway.openai.protocol import ChatCompletionChunk, ChatCompletionChunkChoice, ChatDelta, Usage, encode
from stoker_gateway.openai.request import ChatCompletionRequest
from stoker_gateway.openai.streaming import event


class ChatStream:
    """One stream. Every chunk has the same id, created and model."""

    def __init__(self, request: ChatCompletionRequest, request_id: str, plan: ChatPlan) -> None:
        self._request = request
        self._id = request_id
        self._created = int(time.time())
        self._usage = StreamUsage(request)
        self._num_unfinished = request.n or 1
        self._plan = plan
        self._readers: dict[int, ChoiceReader] = {}
        self._is_aborted = False

    async def events(self, outputs: AsyncGenerator[RequestOutput]) -> AsyncGenerator[bytes]:
        """The events of one output go together. Raises EngineError, before or after the first event."""
        async with aclosing(outputs):
            async for output in outputs:
                self._usage.update(0, output)
                if data := b"".join(event(encode(chunk)) for chunk in self._chunks(output)):
                    yield data
        if self._num_unfinished:
            raise EngineGenerateError("The stream ended before its answer did.")
        if self._request.include_usage:
            usage = with_reasoning(self._usage.total, self._readers.values())
            yield event(encode(self._chunk([], usage)))
        if self._is_aborted:
            raise aborted()

    def _chunks(self, output: RequestOutput) -> Iterator[ChatCompletionChunk]:
        for choice in output.outputs:
            reader = self._readers.get(choice.index)
            if reader is None:
                reader = self._readers[choice.index] = ChoiceReader(self._plan)
                first = self._chunk([ChatCompletionChunkChoice(choice.index, ChatDelta(role="assistant", content=""))], self._usage.of_chunk())
                first.prompt_token_ids = output.prompt_token_ids if self._request.return_token_ids else UNSET
                yield first
            delta = chat_delta(reader.parts(choice))
            if not is_empty(delta) or choice.logprobs or (choice.token_ids and self._request.return_token_ids):
                yield self._chunk([self._delta_choice(choice, delta)], self._usage.of_chunk())
            if (finish_reason := reader.finish_name(choice)) is not None:
                self._num_unfinished -= 1
                self._is_aborted = self._is_aborted or choice.finish_reason is FinishReason.ABORT
                last = ChatCompletionChunkChoice(choice.index, ChatDelta(), finish_reason=finish_reason, stop_reason=choice.stop_reason)
                chunk = self._chunk([last], self._usage.of_chunk())
                chunk.system_fingerprint = SYSTEM_FINGERPRINT
                yield chunk

    def _delta_choice(self, choice: CompletionOutput, delta: ChatDelta) -> ChatCompletionChunkChoice:
        return ChatCompletionChunkChoice(
            choice.index,
            delta,
            logprobs=chat_logprobs(choice.token_ids, choice.logprobs, self._request.num_top_logprobs) if choice.logprobs else None,
            token_ids=choice.token_ids if self._request.return_token_ids else UNSET,
        )

    def _chunk(self, choices: list[ChatCompletionChunkChoice], usage: Usage | UnsetType | None) -> ChatCompletionChunk:
        return ChatCompletionChunk(id=self._id, created=self._created, model=self._request.model, choices=choices, usage=usage)
