"""TextAlignment: what of a choice's text each of its tokens has, where both come in pieces."""

import codecs
from collections.abc import Iterable

_MAX_UNBOUNDED = 1024
"""Characters that wait for one token where nothing bounds a token's text."""


class TextAlignment:
    """What is shown of a token before the token itself, because a stop string may begin inside it, waits for the token. More than one token's text is the
    text of tokens that are spelled in another way."""

    def __init__(self, max_token_characters: int | None) -> None:
        """max_token_characters: the tokenizer's."""
        self._max_waiting = _MAX_UNBOUNDED if max_token_characters is None else max_token_characters + 1  # a special token may get a space
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""

    def texts(self, text: str, tokens: Iterable[bytes], *, is_over: bool) -> list[str]:
        """The text of each of `tokens`, whose bytes are given: nothing of one inside a character, or of a skipped one. The last one may be cut by the end."""
        text, position, texts = self._waiting + text, 0, []
        for token in tokens:
            end = position + _num_shown(self._decoder.decode(token), text, position, is_over=is_over)
            texts.append(text[position:end])
            position = end
        self._waiting = text[position:]
        return texts

    def take_unaligned(self, *, is_over: bool) -> str:
        """Text that no token will have."""
        if not is_over and len(self._waiting) <= self._max_waiting:
            return ""
        text, self._waiting = self._waiting, ""
        return text


def _num_shown(token_text: str, text: str, position: int, *, is_over: bool) -> int:
    # A text's first token may lose its space, and one that is special may get one.
    for spelling in (token_text, token_text.removeprefix(" "), f" {token_text}"):
        if text.startswith(spelling, position):
            return len(spelling)
    return len(text) - position if is_over and token_text.startswith(text[position : position + len(token_text)]) else 0
