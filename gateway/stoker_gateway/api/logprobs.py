"""The engine's log probabilities in the API's two shapes."""

from collections.abc import Sequence

from stoker_engine.outputs import Logprob, PositionLogprobs
from stoker_engine.tokenizer import Tokenizer
from stoker_gateway.api.text_alignment import TextAlignment
from stoker_gateway.openai.protocol import ChatLogprobs, CompletionLogprobs, PromptLogprob, PromptLogprobs, TokenLogprob, TopLogprob

LOWEST = -9999.0
"""Stands for minus infinity, which JSON cannot write."""


def chat_logprobs(token_ids: Sequence[int], positions: Sequence[PositionLogprobs], num_top: int) -> ChatLogprobs:
    return ChatLogprobs([_token_logprob(position[token_id], position, num_top) for token_id, position in zip(token_ids, positions, strict=True)])


def prompt_logprobs(positions: Sequence[PositionLogprobs | None]) -> PromptLogprobs:
    """Per prompt token, by token id."""
    return [
        None if position is None else {token_id: PromptLogprob(_finite(entry.logprob), entry.rank, entry.token) for token_id, entry in position.items()}
        for position in positions
    ]


class CompletionLogprobsBuilder:
    """Builds the completions shape of one choice, piece by piece, and finds where each token stands in the choice's text.

    A token that is not in the text (a special token that is not shown, one past a stop string) stands where the text goes on.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._alignment = TextAlignment(tokenizer.max_token_characters)
        self._num_characters = 0

    def add(self, token_ids: Sequence[int], positions: Sequence[PositionLogprobs | None], text: str) -> CompletionLogprobs:
        """`text` is what these tokens add to the choice, perhaps with the beginning of the next one. A position is None for a prompt's first token."""
        built = CompletionLogprobs([], [], [], [])
        texts = self._alignment.texts(text, map(self._tokenizer.token_bytes, token_ids), is_over=False)
        for token_id, position, token_text in zip(token_ids, positions, texts, strict=True):
            built.text_offset.append(self._num_characters)
            self._num_characters += len(token_text)
            if position is None:
                built.tokens.append(self._tokenizer.token_bytes(token_id).decode(errors="replace"))
                built.token_logprobs.append(None)
                built.top_logprobs.append(None)
                continue
            built.tokens.append(position[token_id].token)
            built.token_logprobs.append(_finite(position[token_id].logprob))
            built.top_logprobs.append(_by_text(position))
        self._num_characters += len(self._alignment.take_unaligned(is_over=False))
        return built

    def add_prompt(self, token_ids: Sequence[int], positions: Sequence[PositionLogprobs | None], text: str) -> CompletionLogprobs:
        """Before all others."""
        built = self.add(token_ids, positions, text)
        self._num_characters += len(self._alignment.take_unaligned(is_over=True))
        return built

    def skip(self, text: str) -> None:
        """`text` belongs to the choice, and nothing is known of its tokens."""
        self._num_characters += len(text)


def join(first: CompletionLogprobs, second: CompletionLogprobs) -> CompletionLogprobs:
    return CompletionLogprobs(
        first.tokens + second.tokens,
        first.token_logprobs + second.token_logprobs,
        first.top_logprobs + second.top_logprobs,
        first.text_offset + second.text_offset,
    )


def _token_logprob(chosen: Logprob, position: PositionLogprobs, num_top: int) -> TokenLogprob:
    # The chosen token comes first in a position, so that it also comes first among equals.
    best = sorted(position.values(), key=lambda entry: -entry.logprob)[:num_top]
    top = [TopLogprob(entry.token, _finite(entry.logprob), list(entry.token_bytes)) for entry in best]
    return TokenLogprob(chosen.token, _finite(chosen.logprob), list(chosen.token_bytes), top)


def _by_text(position: PositionLogprobs) -> dict[str, float]:
    """Different tokens may have one text; the likelier one stands for it."""
    by_text: dict[str, float] = {}
    for entry in position.values():
        by_text[entry.token] = max(_finite(entry.logprob), by_text.get(entry.token, LOWEST))
    return by_text


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST)
