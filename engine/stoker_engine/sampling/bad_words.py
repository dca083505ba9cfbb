"""bad_words: a sequence of tokens may not be completed."""

from collections.abc import Sequence


class BadWords:
    """The bad words of one request, looked up by the token that would precede the last one."""

    def __init__(self, words: Sequence[Sequence[int]], vocab_size: int) -> None:
        usable = [tuple(word) for word in words if word and 0 <= word[-1] < vocab_size]
        self._single = [word[0] for word in usable if len(word) == 1]
        self._by_previous: dict[int, list[tuple[int, ...]]] = {}
        for word in usable:
            if len(word) > 1:
                self._by_previous.setdefault(word[-2], []).append(word)

    def banned(self, output_token_ids: list[int]) -> list[int]:
        """The tokens that would complete a bad word after this output."""
        if not output_token_ids:
            return self._single
        words = self._by_previous.get(output_token_ids[-1], ())
        return self._single + [word[-1] for word in words if tuple(output_token_ids[1 - len(word) :]) == word[:-1]]
