"""The chunks of a streamed completion: pieces of the choices of all prompts in order of arrival; then usage."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from msgspec import UnsetType

from stoker_engine.errors import EngineGenerateError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.outputs import RequestOutput
from stoker_gateway.api.completion_choices import PromptChoices
from stoker_gateway.api.generation import SYSTEM_FINGERPRINT, aborted, off_loop_if_long, prompt_logprobs_size
from stoker_gateway.api.stream_usage import StreamUsage
from stoker_gateway.openai.protocol import Completion, CompletionChoice, Usage, encode
from stoker_gateway.openai.request import CompletionRequest
from stoker_gateway.openai.streaming import event


class CompletionStream:
    """One stream. Every chunk has the same id, created and model."""

    def __init__(self, request: CompletionRequest, request_id: str, choices: list[PromptChoices]) -> None:
        self._request = request
        self._id = request_id
        self._created = int(time.time())
        self._choices = choices
        self._usage = StreamUsage(request)
        self._num_unfinished = len(choices) * (request.n or 1)
        self._is_aborted = False

    async def events(self, outputs: AsyncGenerator[tuple[int, RequestOutput]]) -> AsyncGenerator[bytes]:
        """The events of one output go together. Raises EngineError, before or after the first event."""
        async with aclosing(outputs):
            async for prompt_index, output in outputs:
                self._usage.update(prompt_index, output)
                make = partial(self._data, self._choices[prompt_index], output)
                if data := await off_loop_if_long(prompt_logprobs_size(output), make):
                    yield data
        if self._num_unfinished:
            raise EngineGenerateError("The stream ended before its answer did.")
        if self._request.include_usage:
            yield event(encode(self._chunk([], self._usage.total)))
        if self._is_aborted:
            raise aborted()

    def _data(self, prompt_choices: PromptChoices, output: RequestOutput) -> bytes:
        events = []
        for choice in prompt_choices.of(output):
            if not (choice.text or choice.logprobs or choice.token_ids or choice.finish_reason):
                continue
            chunk = self._chunk([choice], self._usage.of_chunk())
            if choice.finish_reason is not None:
                self._num_unfinished -= 1
                self._is_aborted = self._is_aborted or choice.finish_reason == str(FinishReason.ABORT)
                chunk.system_fingerprint = SYSTEM_FINGERPRINT
            events.append(event(encode(chunk)))
        return b"".join(events)

    def _chunk(self, choices: list[CompletionChoice], usage: Usage | UnsetType | None) -> Completion:
        return Completion(id=self._id, created=self._created, model=self._request.model, choices=choices, usage=usage)
