"""Counts the tokens of an answer's reasoning, its marks included, by the marks that are tokens of their own."""

from collections.abc import Sequence
from dataclasses import dataclass

from stoker_engine.tokenizer import Tokenizer
from stoker_gateway.reasoning.think import ThinkTags
from stoker_gateway.tools.harmony import ANALYSIS, CHANNEL, ENDS


@dataclass(slots=True, frozen=True)
class ReasoningMarks:
    """`begin` are the two tokens that begin a stretch of reasoning; None where there is one, from the answer's first token on."""

    begin: tuple[int, int] | None
    ends: frozenset[int]


def think_marks(tags: ThinkTags, tokenizer: Tokenizer) -> ReasoningMarks | None:
    """None where the end is no token of its own."""
    end = tokenizer.encode_chat(tags.end)
    return ReasoningMarks(None, frozenset(end)) if len(end) == 1 else None


def harmony_marks(tokenizer: Tokenizer) -> ReasoningMarks | None:
    """None where a mark, or the channel's name, is no token of its own."""
    begin, *ends = (tokenizer.encode_chat(text) for text in (CHANNEL + ANALYSIS, *ENDS))
    if len(begin) != 2 or any(len(end) != 1 for end in ends):
        return None
    return ReasoningMarks((begin[0], begin[1]), frozenset(token_id for end in ends for token_id in end))


class ReasoningTokens:
    """Of one choice, whose tokens come in order."""

    def __init__(self, marks: ReasoningMarks) -> None:
        self._marks = marks
        self._is_inside = marks.begin is None
        self._previous: int | None = None
        self.count = 0

    def add(self, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            if self._is_inside:
                self.count += 1
                self._is_inside = token_id not in self._marks.ends
            elif (self._previous, token_id) == self._marks.begin:
                self.count += 2
                self._is_inside = True
            self._previous = token_id
