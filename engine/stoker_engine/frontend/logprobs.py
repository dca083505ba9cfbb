"""Log probabilities of the engine → PositionLogprobs with the tokens' text and bytes."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import overload

from stoker_engine.frontend.incremental_decoder import begun_character, prompt_remainder
from stoker_engine.outputs import Logprob, PositionLogprobs
from stoker_engine.protocol import LogprobsArrays, LogprobsLists
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.tokenizer import Tokenizer


class _PromptPositions(Sequence[PositionLogprobs | None]):
    """Made at the first look into them, by whoever looks: a long prompt's take hundreds of milliseconds, which the output handler does not have."""

    def __init__(self, length: int, make: Callable[[], list[PositionLogprobs | None]]) -> None:
        self._length = length
        self._make = make

    @cached_property
    def _positions(self) -> list[PositionLogprobs | None]:
        return self._make()

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> PositionLogprobs | None: ...

    @overload
    def __getitem__(self, index: slice) -> list[PositionLogprobs | None]: ...

    def __getitem__(self, index: int | slice) -> PositionLogprobs | list[PositionLogprobs | None] | None:
        return self._positions[index]


class LogprobsProcessor:
    """One request's log probabilities: a position for each output token, in `positions`."""

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], params: SamplingParams) -> None:
        self._tokenizer = tokenizer
        self._prompt_token_ids = prompt_token_ids
        self._ranked = params.logprob_token_ids is None
        self._begun = prompt_remainder(tokenizer, prompt_token_ids)
        self._num_summed = 0
        self._sum = 0.0
        self._sampled: list[float] = []
        self.positions: list[PositionLogprobs] = []

    def append(self, lists: LogprobsLists) -> None:
        """Take the positions of the next output tokens."""
        for token_ids, logprobs, rank in zip(lists.token_ids, lists.logprobs, lists.ranks, strict=True):
            self.positions.append(self._position(token_ids, logprobs, rank, self._begun))
            self._sampled.append(logprobs[0])
            self._begun = self._advance(self._begun, token_ids[0])

    def cumulative_logprob(self, num_tokens: int) -> float:
        """The sum over the first `num_tokens` output tokens; `num_tokens` must not decrease from call to call."""
        self._sum += sum(self._sampled[self._num_summed : num_tokens])
        self._num_summed = num_tokens
        return self._sum

    def prompt_positions(self, arrays: LogprobsArrays | None) -> Sequence[PositionLogprobs | None]:
        """One position for each prompt token, made when they are read; nothing predicts the first, so it is None."""
        return _PromptPositions(1 if arrays is None else 1 + len(arrays.ranks), lambda: self._make_prompt_positions(arrays))

    def _make_prompt_positions(self, arrays: LogprobsArrays | None) -> list[PositionLogprobs | None]:
        positions: list[PositionLogprobs | None] = [None]
        begun = self._advance(b"", self._prompt_token_ids[0])
        if arrays is not None:
            for token_ids, logprobs, rank in zip(arrays.token_ids.tolist(), arrays.logprobs.tolist(), arrays.ranks.tolist(), strict=True):
                positions.append(self._position(token_ids, logprobs, rank, begun))
                begun = self._advance(begun, token_ids[0])
        return positions

    def _position(self, token_ids: list[int], logprobs: list[float], rank: int, begun: bytes) -> PositionLogprobs:
        position = {token_ids[0]: self._logprob(token_ids[0], logprobs[0], rank, begun)}
        for i in range(1, len(token_ids)):
            if token_ids[i] not in position:
                position[token_ids[i]] = self._logprob(token_ids[i], logprobs[i], i if self._ranked else None, begun)
        return position

    def _logprob(self, token_id: int, logprob: float, rank: int | None, begun: bytes) -> Logprob:
        """The token's text is that of the characters it completes after `begun`; a token that completes none has none."""
        token_bytes = self._tokenizer.token_bytes(token_id)
        try:
            text = token_bytes.decode()
        except UnicodeDecodeError:
            text = (begun + token_bytes).decode(errors="ignore")
        return Logprob(logprob, rank, text, token_bytes)

    def _advance(self, begun: bytes, token_id: int) -> bytes:
        if token_id in self._tokenizer.special_token_ids:
            return begun
        return begun_character(begun + self._tokenizer.token_bytes(token_id))
