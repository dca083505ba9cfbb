import random
from pathlib import Path

import pytest

from stoker_engine.tokenizer import Tokenizer, load_tokenizer
from stoker_gateway.api.reasoning_tokens import ReasoningMarks, ReasoningTokens, harmony_marks, think_marks
from stoker_gateway.reasoning.think import THINK, ThinkTags

END, CHANNEL, ANALYSIS, STOP = 90, 91, 92, 93
THINKING = ReasoningMarks(None, frozenset([END]))
CHANNELS = ReasoningMarks((CHANNEL, ANALYSIS), frozenset([END, STOP]))


@pytest.mark.parametrize(
    ("marks", "token_ids", "expected"),
    [
        (THINKING, [1, 2, END, 3, END, 4], 3),
        (THINKING, [1, 2, 3], 3),
        (THINKING, [], 0),
        (CHANNELS, [CHANNEL, ANALYSIS, 1, 2, END, CHANNEL, 3, 4, END, CHANNEL, ANALYSIS, STOP], 8),
        (CHANNELS, [ANALYSIS, 1, CHANNEL, 2, ANALYSIS, 3], 0),
    ],
)
def test_tokens_from_the_first_mark_to_the_last_are_those_of_reasoning(marks: ReasoningMarks, token_ids: list[int], expected: int) -> None:
    for seed in range(20):
        draw, counted, start = random.Random(seed), ReasoningTokens(marks), 0
        while start < len(token_ids):
            end = draw.randint(start + 1, len(token_ids))
            counted.add(token_ids[start:end])
            start = end
        assert counted.count == expected


@pytest.fixture(scope="module")
def marked(marked_model: Path) -> Tokenizer:
    return load_tokenizer(marked_model)


def test_marks_that_are_spelled_by_several_tokens_tell_nothing(marked: Tokenizer) -> None:
    assert think_marks(THINK, marked) == ReasoningMarks(None, frozenset(marked.encode_chat("</think>")))
    assert think_marks(ThinkTags("<a>", "</a>"), marked) is None
    assert harmony_marks(marked) is None
