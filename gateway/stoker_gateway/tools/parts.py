"""What a parser makes of a model's text: reasoning, content and tool calls, piece by piece."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

from stoker_gateway.tools.source import Source


@dataclass(slots=True, frozen=True)
class Content:
    text: str


@dataclass(slots=True, frozen=True)
class Reasoning:
    text: str


@dataclass(slots=True, frozen=True)
class CallBegin:
    """A tool call. `call_id` is the model's own, where its format has one."""

    name: str
    call_id: str | None = None


@dataclass(slots=True, frozen=True)
class CallArguments:
    """More of the arguments' JSON text, of the call that began last."""

    text: str


Part = Content | Reasoning | CallBegin | CallArguments

Steps = Generator[Part | None, None, None]
"""A parser's work, in the order of the text. None: it cannot go on without more text."""


class Parser(Protocol):
    """Parts of one answer. What `feed` and `finish` give, joined, is the same however the text is cut. Neither raises, and no text is lost:
    what is no call is content."""

    def feed(self, text: str) -> list[Part]: ...

    def finish(self) -> list[Part]: ...


class SteppedParser:
    """A parser written as one generator over the text."""

    def __init__(self, steps: Callable[[Source], Steps]) -> None:
        self._source = Source()
        self._steps = steps(self._source)

    def feed(self, text: str) -> list[Part]:
        self._source.add(text)
        return self._go_on()

    def finish(self) -> list[Part]:
        self._source.end()
        return self._go_on()

    def _go_on(self) -> list[Part]:
        parts = []
        for part in self._steps:
            if part is None:
                break
            parts.append(part)
        return parts
