"""Drops the whitespace that belongs to a format's marks, not to the text."""

from collections.abc import Iterator

from stoker_gateway.tools.parts import CallBegin, Content, Parser, Part, Reasoning


class TrimmedParser:
    """Reasoning loses the whitespace around it, content that after reasoning and around calls; an answer of content alone is left as it is.

    Reasoning of whitespace alone is told as an empty one, where it begins the answer.
    """

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._content = ""
        self._reasoning = ""
        self._has_content = False
        self._has_reasoning = False
        self._is_marked = False
        self._has_called = False

    def feed(self, text: str) -> list[Part]:
        return self._trim(self._parser.feed(text))

    def finish(self) -> list[Part]:
        parts = self._trim(self._parser.finish())
        return parts if self._has_called or not self._content or (self._is_marked and not self._has_content) else [*parts, Content(self._content)]

    def _trim(self, parts: list[Part]) -> list[Part]:
        return [trimmed for part in parts for trimmed in self._trim_part(part)]

    def _trim_part(self, part: Part) -> Iterator[Part]:
        if isinstance(part, Content):
            yield from self._add_content(part.text)
            return
        if isinstance(part, Reasoning):
            yield from self._add_reasoning(part.text)
            self._is_marked = True
            return
        self._is_marked = True
        self._has_called = self._has_called or isinstance(part, CallBegin)
        yield part

    def _add_content(self, text: str) -> Iterator[Content]:
        text = self._content + text
        shown = text.rstrip()
        self._content = text[len(shown) :]
        if self._is_marked and not self._has_content:
            shown = shown.lstrip()
        if shown:
            self._has_content = True
            yield Content(shown)

    def _add_reasoning(self, text: str) -> Iterator[Reasoning]:
        text = self._reasoning + text
        shown = text.rstrip()
        self._reasoning = text[len(shown) :]
        if not self._has_reasoning:
            shown = shown.lstrip()
        self._has_reasoning = self._has_reasoning or bool(shown)
        if shown or not self._is_marked:
            yield Reasoning(shown)
