"""Vocabularies and requests for tests of the text side."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as Backend

from stoker_engine.protocol import EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.token_spelling import printable_bytes
from stoker_engine.tokenizer import Tokenizer
from stoker_engine.tokenizer_source import TokenizerSource

SMALL_ALPHABET = "ab😀é".encode()
_SPELLING = {byte: character for character, byte in printable_bytes().items()}

MakeTokenizer = Callable[[Sequence[bytes]], Tokenizer]
MakeRequest = Callable[..., EngineCoreRequest]


def _make_tokenizer(tokens: Sequence[bytes]) -> Tokenizer:
    """Token i is `tokens[i]`; then come the special tokens <s> and </s>, of which the latter ends an answer."""
    vocabulary = {"".join(_SPELLING[byte] for byte in token): i for i, token in enumerate(tokens)}
    backend = Backend(models.BPE(vocab=vocabulary, merges=[]))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in ("<s>", "</s>")])
    return Tokenizer(TokenizerSource(backend=backend, bos_token="<s>", eos_token="</s>", eos_token_ids=(len(tokens) + 1,)))


@pytest.fixture(scope="session")
def make_tokenizer() -> MakeTokenizer:
    return _make_tokenizer


@pytest.fixture(scope="session")
def byte_tokenizer() -> Tokenizer:
    """256 tokens of one byte each; then <s> (256) and </s> (257)."""
    return _make_tokenizer([bytes([byte]) for byte in range(256)])


@pytest.fixture(scope="session")
def chunk_tokenizer() -> Tokenizer:
    """All sequences of one to three of the bytes that a, b, é and 😀 are made of, so that most texts can be cut in many ways."""
    alphabet = sorted(set(SMALL_ALPHABET))
    return _make_tokenizer([bytes(chunk) for length in (1, 2, 3) for chunk in product(alphabet, repeat=length)])


@pytest.fixture
def make_request() -> MakeRequest:
    """A request with the SamplingParams given as keyword arguments."""

    def make(request_id: str = "r-1", prompt_token_ids: Sequence[int] = (97,), **params: Any) -> EngineCoreRequest:
        params = {"max_tokens": 1000, **params}
        return EngineCoreRequest(
            request_id=request_id,
            prompt_token_ids=list(prompt_token_ids),
            sampling_params=SamplingParams(**params),
            arrival_time=1000.0,
            external_request_id=request_id.rpartition("-")[0],
        )

    return make
