"""Source: text that comes in pieces, read as if it were there at once.

Each reading method is a generator that yields None until the text decides the answer, so that the answer does not depend on where the text was cut.
"""

import re
from collections.abc import Callable, Generator
from functools import cache
from typing import TypeVar

T = TypeVar("T")
Reading = Generator[None, None, T]

_WHITESPACE = re.compile(r"\s*")


class Source:
    """`position` is where reading goes on, counted from the last `release`."""

    def __init__(self) -> None:
        self._text = ""
        self._start = 0  # of what was not released, in the text
        self.position = 0
        self.has_ended = False

    def add(self, text: str) -> None:
        self._text = self._text[self._start :] + text
        self._start = 0

    def end(self) -> None:
        self.has_ended = True

    @property
    def is_exhausted(self) -> bool:
        return self.has_ended and self._here == len(self._text)

    def release(self) -> None:
        """Forget what was read: `since` reaches back to here at most."""
        self._start += self.position
        self.position = 0

    def since(self, position: int) -> str:
        """What was read from `position` on."""
        return self._text[self._start + position : self._here]

    def available(self) -> str:
        """What has come and was not read."""
        return self._text[self._here :]

    def read_by(self, read: Callable[[str, int], tuple[str, int]]) -> str:
        """Reads what `read` takes of a text from a place on: it returns what it makes of that, and where it ends."""
        made, end = read(self._text, self._here)
        self.position = end - self._start
        return made

    def peek(self) -> Reading[str]:
        """The next character, not read; empty at the end."""
        while self._here == len(self._text) and not self.has_ended:
            yield
        return self._text[self._here : self._here + 1]

    def skip(self, literal: str) -> Reading[bool]:
        """Reads `literal` if it comes next."""
        while not self.has_ended and len(self._text) - self._here < len(literal) and literal.startswith(self.available()):
            yield
        if not self._text.startswith(literal, self._here):
            return False
        self.position += len(literal)
        return True

    def skip_whitespace(self) -> Reading[None]:
        while True:
            match = _WHITESPACE.match(self._text, self._here)
            self.position = match.end() - self._start if match else self.position
            if self._here < len(self._text) or self.has_ended:
                return
            yield

    def take_while(self, pattern: re.Pattern[str]) -> Reading[str]:
        """Reads all characters that come next and match `pattern`, which is for one character."""
        start = self.position
        while True:
            while self._here < len(self._text) and pattern.match(self._text[self._here]):
                self.position += 1
            if self._here < len(self._text) or self.has_ended:
                return self.since(start)
            yield

    def take_until(self, markers: tuple[str, ...]) -> Generator[str | None, None, str | None]:
        """Yields the text before the first of `markers`, as it comes. Returns the marker, which is read, too; None at the end of the text.

        No marker may be part of another. What was read may be released at each piece.
        """
        while True:
            found = _any_of(markers).search(self._text, self._here)
            if found is not None:
                if piece := self._read_to(found.start()):
                    yield piece
                self.position += len(found.group())
                return found.group()
            if piece := self._read_to(len(self._text) if self.has_ended else len(self._text) - self._begun_length(markers)):
                yield piece
            if self.has_ended:
                return None
            yield None

    @property
    def _here(self) -> int:
        return self._start + self.position

    def _read_to(self, end: int) -> str:
        """`end` is a place in the text."""
        piece = self._text[self._here : end]
        self.position = end - self._start
        return piece

    def _begun_length(self, markers: tuple[str, ...]) -> int:
        """The length of the longest end of the text that is the beginning of a marker."""
        most = max(map(len, markers)) - 1
        for length in range(min(most, len(self._text) - self._here), 0, -1):
            tail = self._text[-length:]
            if any(marker.startswith(tail) for marker in markers):
                return length
        return 0


@cache
def _any_of(markers: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, markers)))
