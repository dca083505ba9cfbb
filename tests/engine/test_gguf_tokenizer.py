from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from gguf import GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker_engine.errors import ModelLoadError
from stoker_engine.token_spelling import printable_bytes
from stoker_engine.tokenizer import GenerationDefaults, load_tokenizer

BYTE_TOKENS = list(printable_bytes())
MERGES = ["a b", "ab c", "1 2", "12 3", "123 4", "Ġ Ġ"]
BYTE_LEVEL = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "llama-bpe",
    "tokenizer.ggml.tokens": [*BYTE_TOKENS, *(merge.replace(" ", "") for merge in MERGES), "<s>", "</s>", "<eot>", "<think>"],
    "tokenizer.ggml.token_type": [1] * (len(BYTE_TOKENS) + len(MERGES)) + [3, 3, 3, 4],
    "tokenizer.ggml.merges": MERGES,
    "tokenizer.ggml.bos_token_id": 262,
    "tokenizer.ggml.eos_token_id": 263,
    "tokenizer.ggml.eot_token_id": 264,
}
PIECES = ["▁", "a", "b", "c", "ab", "bc", "▁a", "▁ab", "abc", "▁bc", "ca", "▁▁"]
SENTENCE_PIECE = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES],
    "tokenizer.ggml.scores": [0.0] * 259 + [-20.0, -21.0, -22.0, -23.0, -1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0],
    "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(PIECES),
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}

WriteGGUF = Callable[[dict[str, object]], Path]


@pytest.fixture(scope="module")
def write_gguf(tmp_path_factory: pytest.TempPathFactory) -> WriteGGUF:
    def write(values: dict[str, object]) -> Path:
        path = tmp_path_factory.mktemp("gguf") / "model.gguf"
        writer = GGUFWriter(path, "llama")
        for key, value in values.items():
            if isinstance(value, list):
                writer.add_array(key, value)
            elif isinstance(value, bool):
                writer.add_bool(key, value)
            elif isinstance(value, int):
                writer.add_uint32(key, value)
            elif isinstance(value, float):
                writer.add_float32(key, value)
            else:
                writer.add_string(key, str(value))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return path

    return write


def pieces_of(text: str, scores: dict[str, float]) -> list[str]:
    """SentencePiece's BPE as its authors define it: join the adjacent pair whose joint piece scores best, until none is left."""
    pieces = list(text)
    while True:
        pairs = [(scores[left + right], -i) for i, (left, right) in enumerate(pairwise(pieces)) if left + right in scores]
        if not pairs:
            return pieces
        at = -max(pairs)[1]
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]


def test_a_llama_bpe_file_adds_bos_and_keeps_up_to_three_digits_together(write_gguf: WriteGGUF) -> None:
    tokenizer = load_tokenizer(write_gguf(BYTE_LEVEL))
    assert tokenizer.encode("abc1234")[0] == tokenizer.bos_token_id == 262
    assert [tokenizer.token_bytes(token_id) for token_id in tokenizer.encode_chat("abc1234")] == [b"abc", b"123", b"4"]


def test_a_qwen2_file_splits_each_digit_and_composes_characters(write_gguf: WriteGGUF) -> None:
    tokenizer = load_tokenizer(write_gguf({**BYTE_LEVEL, "tokenizer.ggml.pre": "qwen2"}))
    assert [tokenizer.token_bytes(token_id) for token_id in tokenizer.encode("abc12")] == [b"abc", b"1", b"2"]
    assert tokenizer.encode("e\u0301") == tokenizer.encode("\u00e9")


def test_the_file_decides_whether_bos_is_added(write_gguf: WriteGGUF) -> None:
    assert load_tokenizer(write_gguf({**BYTE_LEVEL, "tokenizer.ggml.add_bos_token": False})).encode("c") == [BYTE_TOKENS.index("c")]


def test_the_ends_of_sequence_and_turn_both_end_an_answer(write_gguf: WriteGGUF) -> None:
    assert load_tokenizer(write_gguf(BYTE_LEVEL)).eos_token_ids == (263, 264)


def test_a_user_defined_token_is_recognized_whole_and_is_not_special(write_gguf: WriteGGUF) -> None:
    tokenizer = load_tokenizer(write_gguf(BYTE_LEVEL))
    assert tokenizer.encode_chat("a<think>b")[1] == 265
    assert tokenizer.special_token_ids == {262, 263, 264}


def test_sampling_defaults_in_the_file_are_kept(write_gguf: WriteGGUF) -> None:
    tokenizer = load_tokenizer(write_gguf({**BYTE_LEVEL, "general.sampling.temp": 0.5, "general.sampling.top_k": 40}))
    assert tokenizer.generation_defaults == GenerationDefaults(temperature=0.5, top_k=40)


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet="abc ", min_size=1, max_size=24))
def test_sentence_piece_merges_follow_the_scores(write_gguf: WriteGGUF, text: str) -> None:
    tokenizer = load_tokenizer(write_gguf(SENTENCE_PIECE))
    prefixed = text if text.startswith(" ") else " " + text
    scores = dict(zip(SENTENCE_PIECE["tokenizer.ggml.tokens"], SENTENCE_PIECE["tokenizer.ggml.scores"], strict=True))
    expected = [piece.replace("▁", " ").encode() for piece in pieces_of(prefixed.replace(" ", "▁"), scores)]
    token_ids = tokenizer.encode(text)
    assert token_ids[0] == tokenizer.bos_token_id
    assert [tokenizer.token_bytes(token_id) for token_id in token_ids[1:]] == expected


def test_sentence_piece_spells_unknown_characters_in_bytes(write_gguf: WriteGGUF) -> None:
    tokenizer = load_tokenizer(write_gguf(SENTENCE_PIECE))
    token_ids = tokenizer.encode_chat("a😀")
    assert [tokenizer.token_bytes(token_id) for token_id in token_ids[-4:]] == [b"\xf0", b"\x9f", b"\x98", b"\x80"]
    assert tokenizer.decode(token_ids) == "a😀"


def without(values: dict[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in values.items() if name != key}


@pytest.mark.case("C062")
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (without(BYTE_LEVEL, "tokenizer.ggml.merges"), "no merges"),
        ({**BYTE_LEVEL, "tokenizer.ggml.merges": ["x missing"]}, "merges do not fit"),
        ({**BYTE_LEVEL, "tokenizer.ggml.pre": "klingon"}, "pre 'klingon' is not supported"),
        (without(BYTE_LEVEL, "tokenizer.ggml.pre"), "pre None is not supported"),
        ({**BYTE_LEVEL, "tokenizer.ggml.model": "rwkv"}, "model 'rwkv' is not supported"),
        ({**BYTE_LEVEL, "tokenizer.ggml.eos_token_id": 999}, "eos_token_id 999 is outside"),
        ({**BYTE_LEVEL, "tokenizer.ggml.eos_token_id": "end"}, "eos_token_id is not of type int"),
        ({**BYTE_LEVEL, "tokenizer.ggml.tokens": [1, 2]}, "tokens is not a list of str"),
        (without(SENTENCE_PIECE, "tokenizer.ggml.scores"), "0 scores"),
        ({"general.name": "no tokenizer"}, "has no tokenizer"),
    ],
)
def test_a_file_without_a_usable_tokenizer_is_refused_with_the_reason(write_gguf: WriteGGUF, values: dict[str, object], message: str) -> None:
    path = write_gguf(values)
    with pytest.raises(ModelLoadError, match=message) as raised:
        load_tokenizer(path)
    assert str(path) in str(raised.value)


@pytest.mark.case("C062")
@pytest.mark.parametrize("length", [0, 3, 20, 100, 1500, -1])
def test_a_truncated_file_is_refused(write_gguf: WriteGGUF, length: int) -> None:
    path = write_gguf(BYTE_LEVEL)
    content = path.read_bytes()
    path.write_bytes(content[: length if length >= 0 else len(content.rstrip(b"\0")) - 1])
    with pytest.raises(ModelLoadError, match=r"truncated|not a GGUF file"):
        load_tokenizer(path)


@settings(max_examples=200, deadline=None)
@given(position=st.integers(0, 2000), replacement=st.binary(min_size=1, max_size=8))
def test_a_damaged_file_loads_or_is_refused_but_never_fails_otherwise(write_gguf: WriteGGUF, position: int, replacement: bytes) -> None:
    path = write_gguf(BYTE_LEVEL)
    content = bytearray(path.read_bytes())
    content[position : position + len(replacement)] = replacement
    path.write_bytes(content)
    try:
        load_tokenizer(path)
    except ModelLoadError as error:
        assert str(path) in str(error)
