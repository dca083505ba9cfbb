"""IncrementalDecoder: token ids → text, one token at a time, in time that does not grow with the length of the text.

The text of a token is known by its bytes, so the only state is the begun character, at most 3 bytes.
"""

import codecs
from collections.abc import Sequence

from stoker_engine.sampling_params import SamplingParams
from stoker_engine.tokenizer import Tokenizer

_MAX_PRIMING_TOKENS = 16
_MAX_BEGUN_BYTES = 3

_new_utf8_decoder = codecs.getincrementaldecoder("utf-8")


def begun_character(data: bytes) -> bytes:
    """The bytes at the end of `data` that begin a UTF-8 character and do not complete it."""
    if data.isascii():
        return b""
    decoder = _new_utf8_decoder("replace")
    decoder.decode(data[-_MAX_BEGUN_BYTES:])
    return decoder.getstate()[0]


def prompt_remainder(tokenizer: Tokenizer, prompt_token_ids: Sequence[int]) -> bytes:
    """The begun character at the end of a prompt; special tokens there add nothing."""
    tail = b""
    for token_id in reversed(prompt_token_ids[-_MAX_PRIMING_TOKENS:]):
        if token_id not in tokenizer.special_token_ids:
            tail = tokenizer.token_bytes(token_id) + tail
        if len(tail) >= _MAX_BEGUN_BYTES:
            break
    return begun_character(tail)


class IncrementalDecoder:
    """The text of one answer. A character comes out when its last byte is there; bytes that can become none come out as U+FFFD.

    `inside_character`: the bytes so far end within a character.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], params: SamplingParams) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = params.skip_special_tokens
        self._kept_special_token_ids = frozenset(params.kept_special_token_ids)
        self._spaces_between_special_tokens = params.spaces_between_special_tokens
        self._after_special = prompt_token_ids[-1] in tokenizer.special_token_ids
        self._utf8 = _new_utf8_decoder("replace")
        self._decode(prompt_remainder(tokenizer, prompt_token_ids))

    def step(self, token_id: int) -> str:
        """The text that the next token completes."""
        if not self.inside_character and (text := self._tokenizer.whole_text(token_id)) is not None:
            self._after_special = False
            return text
        if token_id not in self._tokenizer.special_token_ids:
            self._after_special = False
            return self._decode(self._tokenizer.token_bytes(token_id))
        if self._skip_special_tokens and token_id not in self._kept_special_token_ids:
            return ""
        spaced = self._spaces_between_special_tokens or not self._after_special
        self._after_special = True
        return self._decode((self._tokenizer.special_token_separator if spaced else b"") + self._tokenizer.token_bytes(token_id))

    def flush(self) -> str:
        """What the end of the answer leaves incomplete: at most one U+FFFD."""
        self.inside_character = False
        return self._utf8.decode(b"", final=True)

    def _decode(self, data: bytes) -> str:
        text = self._utf8.decode(data)
        self.inside_character = bool(self._utf8.getstate()[0])
        return text
