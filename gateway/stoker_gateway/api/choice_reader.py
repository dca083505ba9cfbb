"""ChoiceReader: one choice's text as parts: reasoning, content and tool calls, in the order of the text."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import msgspec

from stoker_engine.finish_reason import FinishReason
from stoker_engine.outputs import CompletionOutput
from stoker_gateway.api.chat_plan import ChatPlan
from stoker_gateway.api.generation import finish_name
from stoker_gateway.api.reasoning_tokens import ReasoningTokens
from stoker_gateway.api.request_record import current_record
from stoker_gateway.openai.protocol import CompletionTokensDetails, Usage
from stoker_gateway.tools.parts import CallArguments, CallBegin, Content, Part, Reasoning

TOOL_CALLS = "tool_calls"


@dataclass(slots=True, frozen=True)
class Call:
    """The beginning of a call. `index` counts those of one choice."""

    index: int
    call_id: str
    name: str


@dataclass(slots=True, frozen=True)
class Arguments:
    """More of the arguments' JSON text, of the call that began last."""

    index: int
    text: str


AnswerPart = Content | Reasoning | Call | Arguments


class ChoiceReader:
    """Reads a choice's outputs in order: `parts` is what each adds. Joined, they are the same however the text was cut into outputs."""

    def __init__(self, plan: ChatPlan) -> None:
        self._plan = plan
        self._parser = None if plan.make_parser is None else plan.make_parser()
        self._num_calls = 0
        self._arguments: list[str] = []  # of the last call
        self._is_dropping = False
        self._has_reasoned = False
        self._reasoning_tokens = None if plan.reasoning_marks is None else ReasoningTokens(plan.reasoning_marks)

    @property
    def num_reasoning_tokens(self) -> int | None:
        """So far; None where they cannot be told."""
        if self._reasoning_tokens is None:
            return None
        return self._reasoning_tokens.count if self._has_reasoned else 0

    def parts(self, output: CompletionOutput) -> list[AnswerPart]:
        """None is empty, and no two of a kind follow each other."""
        if self._parser is None:
            return [Content(output.text)] if output.text else []
        if self._reasoning_tokens is not None:
            self._reasoning_tokens.add(output.token_ids)
        parts = self._parser.feed(output.text)
        if output.finish_reason is not None:
            parts += self._parser.finish()
        return list(_joined(self._numbered(parts)))

    def finish_name(self, output: CompletionOutput) -> str | None:
        """After the output's parts. An answer that called is `tool_calls` unless it was cut short. Raises EngineGenerateError for a choice that failed."""
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

    def _numbered(self, parts: Iterable[Part]) -> Iterator[AnswerPart]:
        for part in parts:
            if isinstance(part, CallBegin):
                yield from self._begin_call(part)
                continue
            self._has_reasoned = self._has_reasoned or isinstance(part, Reasoning)  # of blanks, too: its marks are tokens
            if not part.text:
                continue
            if not isinstance(part, CallArguments):
                yield part
            elif not self._is_dropping:
                self._arguments.append(part.text)
                yield Arguments(self._num_calls - 1, part.text)

    def _begin_call(self, call: CallBegin) -> Iterator[Call]:
        self._is_dropping = self._num_calls > 0 and not self._plan.allows_many
        if not self._is_dropping:
            self._num_calls += 1
            self._arguments = []
            yield Call(self._num_calls - 1, call.call_id or self._plan.make_call_id(), call.name)


def with_reasoning(usage: Usage, readers: Iterable[ChoiceReader]) -> Usage:
    """The same usage, with the tokens of the choices' reasoning where they can be told."""
    counts = [count for reader in readers if (count := reader.num_reasoning_tokens) is not None]
    return msgspec.structs.replace(usage, completion_tokens_details=CompletionTokensDetails(sum(counts))) if counts else usage


def _joined(parts: Iterable[AnswerPart]) -> Iterator[AnswerPart]:
    """Pieces of one text become one."""
    for _, several in groupby(parts, key=_kind):
        first, *more = several
        if more and not isinstance(first, Call):
            yield replace(first, text="".join(part.text for part in (first, *more) if not isinstance(part, Call)))
        else:
            yield first


def _kind(part: AnswerPart) -> tuple[type[AnswerPart], int | None]:
    return type(part), part.index if isinstance(part, Call | Arguments) else None


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
