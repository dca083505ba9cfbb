"""Tokenizer: text ↔ token ids ↔ bytes, for a Hugging Face directory or a GGUF file. Imports no torch."""

import os
from collections.abc import Sequence
from pathlib import Path

from stoker_engine.errors import ParameterError
from stoker_engine.gguf_tokenizer import count_gguf_token_ids, load_gguf_tokenizer
from stoker_engine.hugging_face_tokenizer import count_hugging_face_token_ids, load_hugging_face_tokenizer
from stoker_engine.token_spelling import make_spelling
from stoker_engine.tokenizer_source import GenerationDefaults, TokenizerSource

__all__ = ["GenerationDefaults", "Tokenizer", "count_token_ids", "load_tokenizer"]


class Tokenizer:
    """A model's tokenizer. Safe to use from several threads.

    `vocab_size` is the highest token id + 1, added tokens included. `eos_token_ids` are all the ids that end an answer: the tokenizer's own and those of
    the model's generation settings. `max_token_characters` bounds the text of one token, None where nothing does. `special_token_separator` is what a text
    has before a special token: a space in vocabularies of whole words.
    """

    def __init__(self, source: TokenizerSource) -> None:
        self._backend = source.backend
        self._backend.no_truncation()
        self._backend.no_padding()
        self._adds_bos = source.adds_bos
        self.bos_token = source.bos_token
        self.eos_token = source.eos_token
        self.bos_token_id = None if source.bos_token is None else self._backend.token_to_id(source.bos_token)
        self.eos_token_ids = source.eos_token_ids
        self.chat_template = source.chat_template
        self.tool_template = source.tool_template
        self.generation_defaults = source.generation_defaults
        self._added_tokens = {token_id: token.content for token_id, token in self._backend.get_added_tokens_decoder().items()}
        self.special_token_ids = frozenset(token_id for token_id, token in self._backend.get_added_tokens_decoder().items() if token.special)
        vocabulary = self._backend.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values(), default=-1) + 1
        self.max_token_characters = None if self._backend.decoder is None else max(map(len, vocabulary), default=0)
        self._spell = make_spelling(self._backend)
        self.special_token_separator = b" " if self._spell("a") == b" a" else b""
        self._whole_text_by_id: dict[int, str | None] = dict.fromkeys(self.special_token_ids)
        self._bytes_by_id: dict[int, bytes] = {token_id: text.encode() for token_id, text in self._added_tokens.items()}

    def replace_chat_template(self, template: str) -> None:
        """For all requests, with tools or without."""
        self.chat_template = template
        self.tool_template = None

    def encode(self, text: str) -> list[int]:
        """The ids of a plain prompt: special tokens in the text are recognized, and BOS is added where the model's files say so.

        Raises ParameterError if the text is not valid Unicode (a lone surrogate).
        """
        token_ids = self._encode(text, add_special_tokens=True)
        starts_with_bos = token_ids[:1] == [self.bos_token_id]
        if self.bos_token_id is None or self.bos_token is None or self._adds_bos is None:
            return token_ids
        if self._adds_bos and not starts_with_bos:
            return [self.bos_token_id, *token_ids]
        if not self._adds_bos and starts_with_bos and not text.startswith(self.bos_token):
            return token_ids[1:]
        return token_ids

    def encode_chat(self, text: str) -> list[int]:
        """The ids of a text that a chat template wrote, or of a part of a text: special tokens in it are recognized, none is added."""
        return self._encode(text, add_special_tokens=False)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of a whole sequence. Incomplete characters come out as U+FFFD."""
        return self._backend.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes that a token adds to a text, perhaps part of a character; a special token's are its own text's. Empty for an unused id."""
        known = self._bytes_by_id.get(token_id)
        if known is None:
            token = self._backend.id_to_token(token_id) if 0 <= token_id < self.vocab_size else None
            known = b"" if token is None else self._spell(token)
            self._bytes_by_id[token_id] = known
        return known

    def spelling(self, token_id: int) -> str:
        """The token as the vocabulary writes it, such as `Ġthe`. Empty for an unused id."""
        return self._backend.id_to_token(token_id) or ""

    def whole_text(self, token_id: int) -> str | None:
        """The text of an ordinary token that begins and ends between two characters; None for any other."""
        if token_id not in self._whole_text_by_id:
            try:
                self._whole_text_by_id[token_id] = self.token_bytes(token_id).decode()
            except UnicodeDecodeError:
                self._whole_text_by_id[token_id] = None
        return self._whole_text_by_id[token_id]

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            # As a batch: for one text alone the interpreter would not be let go, and nobody else served as long.
            return self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
        except TypeError:
            raise ParameterError("the text is not valid Unicode: it has a lone surrogate", "prompt") from None


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of the model at `path`, a Hugging Face directory or a GGUF file. Raises ModelLoadError, naming what is missing or not supported."""
    # Texts come one at a time: threads of the library's own would have nothing to share, and it warns of forks.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return Tokenizer(load_hugging_face_tokenizer(path) if path.is_dir() else load_gguf_tokenizer(path))


def count_token_ids(path: Path) -> int:
    """The `vocab_size` of the tokenizer at `path`, without making it: an engine needs no more. Raises ModelLoadError, naming what is missing."""
    return count_hugging_face_token_ids(path) if path.is_dir() else count_gguf_token_ids(path)
