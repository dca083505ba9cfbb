"""Of a model whose every text begins with BOS."""

from types import SimpleNamespace
from typing import Any

import pytest

from stoker_engine.errors import QueueFullError
from stoker_engine.frontend.admission import Admission, QueuedRequests, QueueLimits
from stoker_engine.frontend.renderer import TemplatedPrompt
from stoker_engine.sampling_params import SamplingParams
from stoker_gateway.api.prompt_truncation import truncated

BOS = 1


class Words:
    """A token per character, and BOS before a text."""

    bos_token_id = BOS

    def __init__(self, max_token_characters: int | None) -> None:
        self.max_token_characters = max_token_characters
        self.num_encoded = 0

    def encode(self, text: str) -> list[int]:
        return [BOS, *self.encode_chat(text)]

    def encode_chat(self, text: str) -> list[int]:
        self.num_encoded += len(text)
        return [10 + int(character) for character in text]


def state(words: Words, num_queued: int = 0) -> Any:
    queued = QueuedRequests()
    for index in range(num_queued):
        queued.add(str(index), 1)
    return SimpleNamespace(tokenizer=words, engine=SimpleNamespace(admission=Admission(QueueLimits(max_requests=2), queued)))


@pytest.mark.parametrize("max_token_characters", [1, None])
@pytest.mark.parametrize(("length", "limit"), [(3, 9), (9, 3), (4000, 3), (9, 1), (3, 4)])
async def test_bos_stays_as_one_of_the_tokens(max_token_characters: int | None, length: int, limit: int) -> None:
    text = "".join(str(index % 10) for index in range(length))
    whole = [BOS, *(10 + index % 10 for index in range(length))]
    expected = whole if len(whole) <= limit else [BOS, *whole[len(whole) - limit + 1 :]]
    words = Words(max_token_characters)
    assert await truncated(state(words), text, limit, SamplingParams()) == expected
    assert await truncated(state(words), whole, limit, SamplingParams()) == expected
    assert await truncated(state(words), TemplatedPrompt(text), limit, SamplingParams()) == whole[1:][-limit:]


async def test_of_a_long_text_its_end_alone_is_tokenized() -> None:
    words = Words(1)
    await truncated(state(words), "1" * 1_000_000, 5, SamplingParams())
    assert words.num_encoded < 100


async def test_where_the_queue_is_full_nothing_is_tokenized() -> None:
    words = Words(1)
    with pytest.raises(QueueFullError):
        await truncated(state(words, num_queued=2), "1" * 100, 5, SamplingParams())
    with pytest.raises(QueueFullError):
        await truncated(state(words, num_queued=1), "1" * 100, 5, SamplingParams(n=2, temperature=1.0))
    assert words.num_encoded == 0
    assert len(await truncated(state(words, num_queued=1), "1" * 100, 5, SamplingParams())) == 5
