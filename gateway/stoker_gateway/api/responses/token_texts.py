"""Cuts an answer's text at its tokens, so that each log probability goes to the item that has its token's text."""

import codecs
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stoker_gateway.openai.protocol import TokenLogprob


@dataclass(slots=True, frozen=True)
class TokenText:
    """`text` is what the answer shows of a token: nothing of one inside a character or of a skipped one. `logprob` is None where the token is not known."""

    text: str
    logprob: TokenLogprob | None


class TokenTexts:
    """Of one choice."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def cut(self, text: str, logprobs: Iterable[TokenLogprob]) -> Iterator[TokenText]:
        """All of `text`, by the tokens of `logprobs`."""
        position = 0
        for logprob in logprobs:
            end = position + _num_shown(self._decoder.decode(bytes(logprob.bytes)), text, position)
            yield TokenText(text[position:end], logprob)
            position = end
        if position < len(text):
            yield TokenText(text[position:], None)


def tokens_of_end(tokens: Sequence[TokenText], text: str) -> list[TokenText]:
    """The last of `tokens`: those that `text` is made of, and those without text among and before them."""
    rest, start = text, len(tokens)
    while start > 0 and (not (shown := tokens[start - 1].text) or (rest and _is_end(shown, rest))):
        start -= 1
        rest = rest[: max(len(rest) - len(shown), 0)]
    return list(tokens[start:])


def _is_end(one: str, other: str) -> bool:
    return one.endswith(other) or other.endswith(one)


def _num_shown(token_text: str, text: str, position: int) -> int:
    for spelling in (token_text, token_text.removeprefix(" ")):  # a text's first token may lose its space
        if text.startswith(spelling, position):
            return len(spelling)
    return len(text) - position if token_text.startswith(text[position : position + len(token_text)]) else 0
