"""Detokenizer: an answer's text as it may be shown, with its token ids in step.

Text is held back while it could be the beginning of a stop string, and no longer; the ids whose text is not shown yet are held with it.
"""

from collections import deque
from collections.abc import Sequence

from stoker_engine.frontend.incremental_decoder import IncrementalDecoder
from stoker_engine.frontend.stop_scope import StopScope
from stoker_engine.frontend.stop_strings import StopMatch, StopStrings
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.tokenizer import Tokenizer


class Detokenizer:
    """One request's text. `num_shown_tokens` of its output ids have had their text shown; it never decreases.

    Positions count characters from the beginning of the answer.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], params: SamplingParams) -> None:
        self._decoder = IncrementalDecoder(tokenizer, prompt_token_ids, params)
        self._stops = StopStrings(params.stop)
        self._scope = None if params.reasoning is None or not params.stop else StopScope(params.reasoning)
        self._num_searched = 0
        self._includes_stop = params.include_stop_str_in_output
        self._min_tokens = params.min_tokens
        self._num_tokens = 0
        self._length = 0
        self._num_shown = 0
        self._tail = ""  # ends at _length; holds what is not shown and what a stop string may still begin in
        self._shown_parts: list[str] = []
        self._held_tokens: deque[tuple[int, int]] = deque()  # start and end of the text of each token that is not shown
        self.num_shown_tokens = 0

    def append(self, token_ids: Sequence[int]) -> str | None:
        """Take the next tokens. Returns the stop string that ends the answer, if one does: the text is cut there and later tokens are dropped."""
        for token_id in token_ids:
            match = self._append_token(token_id)
            if match is not None:
                self._cut(match.end if self._includes_stop else match.start)
                return match.stop
        self._show(self._length - self._num_held_back())
        return None

    def append_silently(self) -> None:
        """Take a last token that has no text to show: the stop token that ended the answer."""
        self._num_tokens += 1
        self._held_tokens.append((self._length, self._length))

    def finish(self) -> None:
        """The answer ends here without a stop string: show all that was held back, and an incomplete character as U+FFFD."""
        self._extend(self._decoder.flush())
        self._show(self._length)

    def take_text(self) -> str:
        """The text shown since the last call."""
        text = "".join(self._shown_parts)
        self._shown_parts.clear()
        return text

    def text(self) -> str:
        """All the text shown so far, if none was taken."""
        self._shown_parts = ["".join(self._shown_parts)]
        return self._shown_parts[0]

    def _append_token(self, token_id: int) -> StopMatch | None:
        start = self._length
        self._extend(self._decoder.step(token_id))
        self._num_tokens += 1
        # A character begun here will be the next one.
        self._held_tokens.append((start, self._length + self._decoder.inside_character))
        if self._length == start:
            return None
        if self._scope is not None:
            self._scope.add(self._tail[start - self._length :])
        if self._num_tokens <= self._min_tokens:
            self._num_searched = self._length
            return None
        return self._find_stop()

    def _find_stop(self) -> StopMatch | None:
        """The match in what was not searched yet, where stop strings count."""
        begin = 0 if self._scope is None else self._scope.begin
        if begin is None:
            return None
        tail_start = self._length - len(self._tail)
        begin = begin if begin > tail_start else tail_start
        match = self._stops.find(self._tail[begin - tail_start :], self._num_searched - begin)
        self._num_searched = self._length
        return match and StopMatch(match.stop, begin + match.start, begin + match.end)

    def _num_held_back(self) -> int:
        """Characters at the text's end that a stop string may begin in."""
        begin = 0
        if self._scope is not None:
            if self._scope.begin is None:
                return self._scope.num_undecided
            begin = self._scope.begin
        if self._includes_stop:
            return 0
        return self._stops.begun_length(self._tail[max(0, len(self._tail) - (self._length - begin)) :])

    def _extend(self, text: str) -> None:
        self._tail += text
        self._length += len(text)

    def _show(self, end: int) -> None:
        """Show the text up to `end`, and the tokens whose text is shown by then."""
        if end > self._num_shown:
            tail_start = self._length - len(self._tail)
            self._shown_parts.append(self._tail[self._num_shown - tail_start : end - tail_start])
            self._num_shown = end
        keep = self._stops.max_prefix
        if keep < self._length - end:
            keep = self._length - end
        if len(self._tail) > keep:
            self._tail = self._tail[len(self._tail) - keep :]
        while self._held_tokens and self._held_tokens[0][1] <= end:
            self._held_tokens.popleft()
            self.num_shown_tokens += 1

    def _cut(self, end: int) -> None:
        """End the text at `end`, where a stop string is. A token with text on both sides is kept."""
        self._show(end)
        while self._held_tokens and self._held_tokens[0][0] < end:
            self._held_tokens.popleft()
            self.num_shown_tokens += 1
        self._held_tokens.clear()
