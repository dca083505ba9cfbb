"""Steps that the parsers of several formats share."""

from collections.abc import Generator

from stoker_gateway.tools.call_object import read_call
from stoker_gateway.tools.parts import Content, Part
from stoker_gateway.tools.source import Source


def content_until(source: Source, markers: tuple[str, ...]) -> Generator[Part | None, None, str | None]:
    """The content before a marker, as it comes. Returns the marker; None at the end of the text. `source.since(0)` begins with the marker."""
    steps = source.take_until(markers)
    while True:
        try:
            piece = next(steps)
        except StopIteration as stop:
            marker: str | None = stop.value
            break
        yield None if piece is None else Content(piece)
        if piece is not None:
            source.release()
    if marker is not None:
        source.position -= len(marker)
        source.release()
        source.position = len(marker)
    return marker


def rest(source: Source) -> Generator[Part | None, None, None]:
    """All the text that comes, as content."""
    while True:
        if text := source.available():
            source.position += len(text)
            yield Content(text)
            source.release()
        if source.has_ended:
            return
        yield None


def read_calls(source: Source, opening: str, closing: str) -> Generator[Part | None, None, bool]:
    """A list of calls as JSON objects, between brackets. False where not even the first is a call: what was read is text."""
    if not (yield from source.skip(opening)):
        return False
    num_calls = 0
    while True:
        yield from source.skip_whitespace()
        start = source.position
        if not (yield from read_call(source)):
            break
        num_calls += 1
        yield from source.skip_whitespace()
        start = source.position
        if not (yield from source.skip(",")):
            yield from source.skip(closing)
            return True
    if not num_calls:
        return False
    if text := source.since(start).removesuffix(closing):
        yield Content(text)
    return True
