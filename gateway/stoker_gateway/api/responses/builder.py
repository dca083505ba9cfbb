"""Builds a response out of the engine's outputs: its events one by one, and what it is at each moment."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec

from stoker_engine.errors import EngineError, ParameterError, QueueFullError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.outputs import CompletionOutput, RequestOutput
from stoker_gateway.api.chat_plan import ChatPlan
from stoker_gateway.api.choice_reader import AnswerPart, Arguments, Call, ChoiceReader
from stoker_gateway.api.generation import aborted, finish_name
from stoker_gateway.api.logprobs import chat_logprobs
from stoker_gateway.api.responses.item_writers import CallWriter, ItemWriter, MessageWriter, ReasoningWriter
from stoker_gateway.api.responses.token_texts import TokenText, TokenTexts, tokens_of_end
from stoker_gateway.openai.responses import events
from stoker_gateway.openai.responses.protocol import (
    ErrorCode,
    IncompleteDetails,
    InputTokensDetails,
    ItemStatus,
    OutputTokensDetails,
    Response,
    ResponseError,
    ResponseUsage,
    Status,
)
from stoker_gateway.tools.parts import Content, Reasoning

_LAST_EVENTS: dict[Status, type[events.LifecycleEvent]] = {
    "completed": events.Completed,
    "incomplete": events.Incomplete,
    "failed": events.Failed,
}


class ResponseBuilder:
    """One answer: its reasoning, a message and calls, as they come. An answer of nothing is an empty message."""

    def __init__(self, response: Response, plan: ChatPlan) -> None:
        self.response = response
        self._reader = ChoiceReader(plan)
        self._is_plain = plan.make_parser is None
        self._writer: ItemWriter | None = None
        self._num_items = 0
        self._token_texts = TokenTexts(plan.max_token_characters)
        self._tokens: list[TokenText] = []  # whose log probabilities no item has yet
        self._has_begun = False
        self._sequence_number = 0

    def create(self) -> Iterator[events.Event]:
        """Once, before anything else."""
        if self._sequence_number == 0:
            yield self._lifecycle(events.Created)
            if self.response.status == "queued":
                yield self._lifecycle(events.Queued)

    def add(self, output: RequestOutput) -> Iterator[events.Event]:
        """What one output of the engine adds; the last one ends the response. Raises EngineGenerateError for a choice that failed."""
        (choice,) = output.outputs
        finish_name(choice)
        if not self._has_begun:
            self._has_begun = True
            yield from self.create()
            self.response.status = "in_progress"
            yield self._lifecycle(events.InProgress)
        added = list(self._add(choice))
        self.response.usage = _usage(output, self._reader.num_reasoning_tokens or 0)
        yield from self._all_numbered(added)
        if choice.finish_reason is not None:
            self._reader.finish_name(choice)  # which counts whether it called
            yield from self._finish(choice.finish_reason)

    def fail(self, error: EngineError) -> Iterator[events.Event]:
        """The engine's error ends the response; what there is of its text stays."""
        yield from self.create()
        self.response.error = ResponseError(_error_code(error), str(error))
        yield from self._end("failed", "incomplete")

    def cancel(self) -> None:
        """No event says so: who cancels a response learns it from the answer."""
        for _ in self._end("cancelled", "incomplete"):
            pass

    def _add(self, choice: CompletionOutput) -> Iterator[events.Event]:
        for output in self._pieces(choice):
            for part in self._reader.parts(output):
                yield from self._add_part(part)
        if choice.finish_reason is not None and (self._num_items == 0 or (self._tokens and isinstance(self._writer, MessageWriter))):
            yield from self._write_text("")

    def _pieces(self, choice: CompletionOutput) -> Iterator[CompletionOutput]:
        """The choice, token by token where their log probabilities are wanted."""
        if choice.logprobs is not None:
            logprobs = chat_logprobs(choice.token_ids, choice.logprobs, self.response.top_logprobs).content
            for token in self._token_texts.cut(choice.text, logprobs, is_over=choice.finish_reason is not None):
                self._tokens.append(token)
                yield CompletionOutput(choice.index, token.text, [])
            choice = replace(choice, text="")
        yield choice

    def _add_part(self, part: AnswerPart) -> Iterator[events.Event]:
        """Log probabilities are those of messages: what else is read has none."""
        match part:
            case Content(text):
                yield from self._write_text(text)
                return
            case Reasoning(text):
                if not isinstance(self._writer, ReasoningWriter):
                    yield from self._begin_item(ReasoningWriter(self._num_items))
            case Call(_, call_id, name):
                text = ""
                yield from self._begin_item(CallWriter(self._num_items, call_id, name))
            case Arguments(_, text):
                pass
        del self._tokens[:-1]  # the last one's text may go on in a message
        if text and isinstance(self._writer, ReasoningWriter | CallWriter):
            yield from self._writer.write(text)

    def _write_text(self, text: str) -> Iterator[events.Event]:
        tokens, self._tokens = self._tokens, []
        if not isinstance(self._writer, MessageWriter):
            tokens = tokens if self._is_plain else tokens_of_end(tokens, text)
            yield from self._begin_item(MessageWriter(self._num_items))
        if (text or tokens) and isinstance(self._writer, MessageWriter):
            yield from self._writer.write(text, [token.logprob for token in tokens if token.logprob is not None])

    def _begin_item(self, writer: ItemWriter) -> Iterator[events.Event]:
        yield from self._end_item("completed")
        self._writer = writer
        self._num_items += 1
        yield from writer.begin()

    def _end_item(self, status: ItemStatus) -> Iterator[events.Event]:
        if self._writer is None:
            return
        for event in self._writer.end(status):
            if isinstance(event, events.ItemDone):
                self.response.output.append(event.item)
            yield event
        self._writer = None

    def _finish(self, reason: FinishReason) -> Iterator[events.Event]:
        if reason is FinishReason.ABORT:
            yield from self.fail(aborted())
        elif reason is FinishReason.LENGTH:
            self.response.incomplete_details = IncompleteDetails("max_output_tokens")
            yield from self._end("incomplete", "incomplete")
        else:
            self.response.completed_at = int(time.time())
            yield from self._end("completed", "completed")

    def _end(self, status: Status, item_status: ItemStatus) -> Iterator[events.Event]:
        yield from self._all_numbered(self._end_item(item_status))
        self.response.status = status
        if status in _LAST_EVENTS:
            yield self._lifecycle(_LAST_EVENTS[status])

    def _lifecycle(self, kind: type[events.LifecycleEvent]) -> events.Event:
        """With the response as it is now: it goes on."""
        return self._numbered(kind(response=msgspec.structs.replace(self.response, output=[*self.response.output])))

    def _all_numbered(self, several: Iterable[events.Event]) -> Iterator[events.Event]:
        return map(self._numbered, several)

    def _numbered(self, event: events.Event) -> events.Event:
        event.sequence_number = self._sequence_number
        self._sequence_number += 1
        return event


def _usage(output: RequestOutput, num_reasoning: int) -> ResponseUsage:
    num_input, num_output = len(output.prompt_token_ids), output.num_output_tokens
    return ResponseUsage(num_input, InputTokensDetails(output.num_cached_tokens), num_output, OutputTokensDetails(num_reasoning), num_input + num_output)


def _error_code(error: EngineError) -> ErrorCode:
    if isinstance(error, ParameterError):
        return "invalid_prompt"
    return "rate_limit_exceeded" if isinstance(error, QueueFullError) else "server_error"
