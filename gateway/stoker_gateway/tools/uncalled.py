"""Calls that nobody allowed, as content: a format may have calls whether or not there are tools."""

from stoker_gateway.tools.parts import CallArguments, CallBegin, Content, Parser, Part


class UncalledParser:
    def __init__(self, parser: Parser) -> None:
        self._parser = parser

    def feed(self, text: str) -> list[Part]:
        return _without_calls(self._parser.feed(text))

    def finish(self) -> list[Part]:
        return _without_calls(self._parser.finish())


def _without_calls(parts: list[Part]) -> list[Part]:
    return [Content(part.text) if isinstance(part, CallArguments) else part for part in parts if not isinstance(part, CallBegin)]
