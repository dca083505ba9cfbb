"""Reasoning between tags, <think>…</think>, before the answer. The first tag may be the end of the prompt."""

from collections.abc import Generator
from dataclasses import dataclass

from stoker_gateway.tools.parts import Content, Parser, Part, Reasoning
from stoker_gateway.tools.source import Source


@dataclass(slots=True, frozen=True)
class ThinkTags:
    start: str
    end: str


THINK = ThinkTags("<think>", "</think>")
MISTRAL_THINK = ThinkTags("[THINK]", "[/THINK]")


class ThinkParser:
    """Reasoning, and the parts that `answer` makes of what follows. `is_open`: the prompt ended within the reasoning."""

    def __init__(self, tags: ThinkTags, answer: Parser, *, is_open: bool) -> None:
        self._tags = tags
        self._answer = answer
        self._source = Source()
        self._steps = self._split(is_open=is_open)
        self._is_reasoning = True

    def feed(self, text: str) -> list[Part]:
        if not self._is_reasoning:
            return self._answer.feed(text)
        self._source.add(text)
        return self._go_on()

    def finish(self) -> list[Part]:
        self._source.end()
        return [*self._go_on(), *self._answer.finish()]

    def _go_on(self) -> list[Part]:
        parts: list[Part] = []
        while self._is_reasoning:
            try:
                part = next(self._steps)
            except StopIteration:
                self._is_reasoning = False
                text = self._source.available()
                return [*parts, *(self._answer.feed(text) if text else ())]
            if part is None:
                break
            parts.append(part)
        return parts

    def _split(self, *, is_open: bool) -> Generator[Part | None, None, None]:
        yield from self._source.skip_whitespace()
        if not (yield from self._source.skip(self._tags.start)) and not is_open:
            self._source.position = 0
            return
        yield Reasoning("")
        self._source.release()
        for piece in self._source.take_until((self._tags.end,)):
            yield None if piece is None else Reasoning(piece)
            if piece is not None:
                self._source.release()


class ContentParser:
    """All of a text is content."""

    def feed(self, text: str) -> list[Part]:
        return [Content(text)] if text else []

    def finish(self) -> list[Part]:
        return []
