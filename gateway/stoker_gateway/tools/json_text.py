"""Reads one JSON value out of text that comes in pieces, as text: where it ends, without a parse of it as a whole.

What stands between the brackets is not checked: whoever gets a model's arguments has to check them anyway.
"""

import json
import re
from collections.abc import Generator

import msgspec

from stoker_gateway.tools.source import Reading, Source

_PLAIN = re.compile(r'[^"{}\[\]]*')
_IN_STRING = re.compile(r'[^"\\\x00-\x1f]*')
_SCALAR = re.compile(r"[^\s,:\]}{\[\"<;]")
_OPENING = "{["
_CLOSING = "}]"


class JsonEnd:
    """Follows a list, an object or a string until its end. Control characters inside strings, which JSON does not allow and models write, are escaped."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_in_string = False
        self._is_escaped = False
        self.is_over = False

    def take(self, text: str, position: int) -> tuple[str, int]:
        """The value's next text, which is that of `text` from `position` on, and where it ends."""
        pieces = []
        while position < len(text) and not self.is_over:
            pattern = _IN_STRING if self._is_in_string else _PLAIN
            if not self._is_escaped:
                match = pattern.match(text, position)
                pieces.append(match.group() if match else "")
                position = match.end() if match else position
            if position < len(text):
                pieces.append(self._step(text[position]))
                position += 1
        return "".join(pieces), position

    def _step(self, character: str) -> str:
        if self._is_in_string:
            return self._step_in_string(character)
        if character == '"':
            self._is_in_string = True
        else:
            self._depth += (character in _OPENING) - (character in _CLOSING)
        self.is_over = self._depth <= 0 and not self._is_in_string
        return character

    def _step_in_string(self, character: str) -> str:
        if self._is_escaped:
            self._is_escaped = False
        elif character == "\\":
            self._is_escaped = True
        elif character == '"':
            self._is_in_string = False
            self.is_over = self._depth <= 0
        elif character < " ":
            return json.dumps(character)[1:-1]
        return character


def value_pieces(source: Source) -> Generator[str | None, None, None]:
    """Yields the text of the value that comes next, as it comes: an object, a list or a string; of anything else, what could be a number or a name."""
    first = yield from source.peek()
    if not first or first not in '{["':
        yield (yield from source.take_while(_SCALAR))
        return
    value = JsonEnd()
    while not value.is_over:
        if piece := source.read_by(value.take):
            yield piece
        elif source.has_ended:
            return
        else:
            yield None


def whole_value(source: Source) -> Reading[str]:
    """The text of the value that comes next, once it is whole; at the text's end, what there is of it."""
    pieces = []
    for piece in value_pieces(source):
        if piece is None:
            yield
        else:
            pieces.append(piece)
    return "".join(pieces)


def whole_string(source: Source) -> Reading[str | None]:
    """The string that comes next; None, with nothing promised of what was read, for anything else."""
    first = yield from source.peek()
    if first != '"':
        return None
    return decode_string((yield from whole_value(source)))


def decode_string(text: str) -> str | None:
    """None for what is no JSON string."""
    try:
        return msgspec.json.decode(text, type=str)
    except (msgspec.DecodeError, UnicodeError):
        return None
