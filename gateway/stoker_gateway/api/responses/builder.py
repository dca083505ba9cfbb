"""Builds a response out of the engine's outputs: its events one by one, and what it is at each moment."""

import time
from collections.abc import Iterator

from stoker_engine.errors import EngineError, ParameterError, QueueFullError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.outputs import CompletionOutput, RequestOutput
from stoker_gateway.api.generation import aborted, finish_name
from stoker_gateway.api.logprobs import chat_logprobs
from stoker_gateway.api.responses.conversation import new_message_id
from stoker_gateway.openai.protocol import TokenLogprob
from stoker_gateway.openai.responses import events
from stoker_gateway.openai.responses.protocol import (
    ErrorCode,
    IncompleteDetails,
    InputTokensDetails,
    ItemStatus,
    OutputMessage,
    OutputText,
    OutputTokensDetails,
    Response,
    ResponseError,
    ResponseUsage,
    Status,
)

_LAST_EVENTS: dict[Status, type[events.LifecycleEvent]] = {
    "completed": events.Completed,
    "incomplete": events.Incomplete,
    "failed": events.Failed,
}


class ResponseBuilder:
    """One answer, of one message. What an event holds is never changed afterwards, but for the response."""

    def __init__(self, response: Response) -> None:
        self.response = response
        self._item_id = new_message_id()
        self._texts: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._has_item = False
        self._sequence_number = 0

    def create(self) -> Iterator[events.Event]:
        """Once, before anything else."""
        if self._sequence_number == 0:
            yield self._numbered(events.Created(response=self.response))
            if self.response.status == "queued":
                yield self._numbered(events.Queued(response=self.response))

    def add(self, output: RequestOutput) -> Iterator[events.Event]:
        """What one output of the engine adds; the last one ends the response. Raises EngineGenerateError for a choice that failed."""
        self.response.usage = _usage(output)
        for choice in output.outputs:
            finish_name(choice)
            yield from self._begin()
            yield from self._add(choice)

    def fail(self, error: EngineError) -> Iterator[events.Event]:
        """The engine's error ends the response; what there is of its text stays."""
        yield from self.create()
        self.response.error = ResponseError(_error_code(error), str(error))
        yield from self._end("failed", "incomplete")

    def cancel(self) -> None:
        """No event says so: who cancels a response learns it from the answer."""
        for _ in self._end("cancelled", "incomplete"):
            pass

    def _begin(self) -> Iterator[events.Event]:
        if self._has_item:
            return
        yield from self.create()
        self._has_item = True
        self.response.status = "in_progress"
        yield self._numbered(events.InProgress(response=self.response))
        yield self._numbered(events.ItemAdded(output_index=0, item=OutputMessage(id=self._item_id)))
        yield self._numbered(events.PartAdded(item_id=self._item_id, output_index=0, content_index=0, part=OutputText()))

    def _add(self, choice: CompletionOutput) -> Iterator[events.Event]:
        logprobs = chat_logprobs(choice.token_ids, choice.logprobs, self.response.top_logprobs).content if choice.logprobs else []
        if choice.text or logprobs:
            self._texts.append(choice.text)
            self._logprobs += logprobs
            yield self._numbered(events.TextDelta(item_id=self._item_id, output_index=0, content_index=0, delta=choice.text, logprobs=logprobs))
        if choice.finish_reason is None:
            return
        if choice.finish_reason is FinishReason.ABORT:
            yield from self.fail(aborted())
        elif choice.finish_reason is FinishReason.LENGTH:
            self.response.incomplete_details = IncompleteDetails("max_output_tokens")
            yield from self._end("incomplete", "incomplete")
        else:
            self.response.completed_at = int(time.time())
            yield from self._end("completed", "completed")

    def _end(self, status: Status, item_status: ItemStatus) -> Iterator[events.Event]:
        if self._has_item:
            yield from self._end_item(item_status)
        self.response.status = status
        if status in _LAST_EVENTS:
            yield self._numbered(_LAST_EVENTS[status](response=self.response))

    def _end_item(self, status: ItemStatus) -> Iterator[events.Event]:
        part = OutputText(text="".join(self._texts), logprobs=self._logprobs)
        item = OutputMessage(id=self._item_id, status=status, content=[part])
        self.response.output = [item]
        yield self._numbered(events.TextDone(item_id=self._item_id, output_index=0, content_index=0, text=part.text, logprobs=part.logprobs))
        yield self._numbered(events.PartDone(item_id=self._item_id, output_index=0, content_index=0, part=part))
        yield self._numbered(events.ItemDone(output_index=0, item=item))

    def _numbered(self, event: events.Event) -> events.Event:
        event.sequence_number = self._sequence_number
        self._sequence_number += 1
        return event


def _usage(output: RequestOutput) -> ResponseUsage:
    num_input, num_output = len(output.prompt_token_ids), output.num_output_tokens
    return ResponseUsage(num_input, InputTokensDetails(output.num_cached_tokens), num_output, OutputTokensDetails(), num_input + num_output)


def _error_code(error: EngineError) -> ErrorCode:
    if isinstance(error, ParameterError):
        return "invalid_prompt"
    return "rate_limit_exceeded" if isinstance(error, QueueFullError) else "server_error"
