"""Cuts an answer's text at its tokens, so that each log probability goes to the item that has its token's text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stoker_gateway.api.text_alignment import TextAlignment
from stoker_gateway.openai.protocol import TokenLogprob


@dataclass(slots=True, frozen=True)
class TokenText:
    """`text` is what the answer shows of a token: nothing of one inside a character or of a skipped one. `logprob` is None where the token is not known."""

    text: str
    logprob: TokenLogprob | None


class TokenTexts:
    """Of one choice."""

    def __init__(self, max_token_characters: int | None) -> None:
        self._alignment = TextAlignment(max_token_characters)

    def cut(self, text: str, logprobs: Sequence[TokenLogprob], *, is_over: bool) -> Iterator[TokenText]:
        """What has come so far, by the tokens of `logprobs`; all of it where the answer is over."""
        tokens = (bytes(logprob.bytes) for logprob in logprobs)
        yield from map(TokenText, self._alignment.texts(text, tokens, is_over=is_over), logprobs)
        if rest := self._alignment.take_unaligned(is_over=is_over):
            yield TokenText(rest, None)


def tokens_of_end(tokens: Sequence[TokenText], text: str) -> list[TokenText]:
    """The last of `tokens`: those that `text` is made of, and those without text among and before them."""
    rest, start = text, len(tokens)
    while start > 0 and (not (shown := tokens[start - 1].text) or (rest and _is_end(shown, rest))):
        start -= 1
        rest = rest[: max(len(rest) - len(shown), 0)]
    return list(tokens[start:])


def _is_end(one: str, other: str) -> bool:
    return one.endswith(other) or other.endswith(one)
