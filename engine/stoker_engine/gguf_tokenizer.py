"""The tokenizer inside a GGUF file: byte-level BPE (`gpt2`) and SentencePiece BPE (`llama`), built with `tokenizers`."""

import enum
from pathlib import Path
from typing import TypeVar

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from stoker_engine.errors import ModelLoadError
from stoker_engine.gguf_metadata import GGUFValue, count_gguf_items, read_gguf_metadata
from stoker_engine.tokenizer_source import GenerationDefaults, TokenizerSource

_TOKENS_KEY = "tokenizer.ggml.tokens"
_EOS_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
"""End of sequence, of turn, of message: each ends an answer."""

_LLAMA3_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


class _Split(enum.Enum):
    """The families of rules that cut a text before BPE."""

    GPT2 = enum.auto()
    GPT2_DIGITS = enum.auto()
    LLAMA3 = enum.auto()
    QWEN2 = enum.auto()


_SPLITS = {
    **dict.fromkeys(("gpt-2", "gpt2", "phi-2", "mpt", "olmo"), _Split.GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), _Split.GPT2_DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "dbrx", "smaug-bpe"), _Split.LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _Split.QWEN2),
}

_Value = TypeVar("_Value", int, float, bool, str)


class _TokenType(enum.IntEnum):
    """`tokenizer.ggml.token_type`; the other types are ordinary tokens here."""

    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4


class _Metadata:
    """The tokenizer's keys of one file, each with the type it must have."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values = read_gguf_metadata(path)

    def scalar(self, key: str, kind: type[_Value]) -> _Value | None:
        value = self._values.get(key)
        if value is None or isinstance(value, kind):
            return value
        raise self.error(f"{key} is not of type {kind.__name__}")

    def items(self, key: str, kind: type[_Value]) -> list[_Value]:
        value: GGUFValue = self._values.get(key, [])
        if isinstance(value, list) and all(isinstance(item, kind) for item in value):
            return [item for item in value if isinstance(item, kind)]
        raise self.error(f"{key} is not a list of {kind.__name__}")

    def error(self, message: str) -> ModelLoadError:
        return ModelLoadError(f"{self._path}: {message}")


def load_gguf_tokenizer(path: Path) -> TokenizerSource:
    """Raises ModelLoadError, naming the file and key, for a kind of tokenizer that is not known or a vocabulary without merges or scores."""
    metadata = _Metadata(path)
    tokens = metadata.items(_TOKENS_KEY, str)
    if not tokens:
        raise metadata.error(f"it has no tokenizer ({_TOKENS_KEY})")
    model = metadata.scalar("tokenizer.ggml.model", str)
    if model == "gpt2":
        backend, adds_bos = _byte_level_backend(metadata, tokens)
    elif model == "llama":
        backend, adds_bos = _sentence_piece_backend(metadata, tokens)
    else:
        raise metadata.error(f"tokenizer.ggml.model {model!r} is not supported (gpt2, llama)")
    _add_special_tokens(backend, metadata, tokens)
    return _source(metadata, backend, tokens, adds_bos=adds_bos)


def count_gguf_token_ids(path: Path) -> int:
    """The highest token id + 1. Raises ModelLoadError, naming the file, if it has none or cannot be read."""
    count = count_gguf_items(path, _TOKENS_KEY)
    if not count:
        raise ModelLoadError(f"{path}: it has no tokenizer ({_TOKENS_KEY})")
    return count


def _source(metadata: _Metadata, backend: Backend, tokens: list[str], *, adds_bos: bool) -> TokenizerSource:
    def token(name: str) -> str | None:
        token_id = metadata.scalar(f"tokenizer.ggml.{name}", int)
        if token_id is not None and not 0 <= token_id < len(tokens):
            raise metadata.error(f"tokenizer.ggml.{name} {token_id} is outside the vocabulary of {len(tokens)}")
        return None if token_id is None else tokens[token_id]

    stated = metadata.scalar("tokenizer.ggml.add_bos_token", bool)
    ends = [metadata.scalar(f"tokenizer.ggml.{name}", int) for name in _EOS_KEYS if token(name) is not None]
    return TokenizerSource(
        backend=backend,
        bos_token=token("bos_token_id"),
        eos_token=token("eos_token_id"),
        adds_bos=adds_bos if stated is None else stated,
        eos_token_ids=tuple(dict.fromkeys(end for end in ends if end is not None)),
        chat_template=metadata.scalar("tokenizer.chat_template", str),
        tool_template=metadata.scalar("tokenizer.chat_template.tool_use", str),
        generation_defaults=GenerationDefaults(
            temperature=metadata.scalar("general.sampling.temp", float),
            top_p=metadata.scalar("general.sampling.top_p", float),
            top_k=metadata.scalar("general.sampling.top_k", int),
            min_p=metadata.scalar("general.sampling.min_p", float),
            repetition_penalty=metadata.scalar("general.sampling.penalty_repeat", float),
        ),
    )


def _byte_level_backend(metadata: _Metadata, tokens: list[str]) -> tuple[Backend, bool]:
    """The backend, and whether it adds BOS where the file does not say."""
    name = metadata.scalar("tokenizer.ggml.pre", str)
    split = _SPLITS.get(name) if name is not None else None
    if split is None:
        raise metadata.error(f"tokenizer.ggml.pre {name!r} is not supported ({', '.join(sorted(_SPLITS))})")
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in metadata.items("tokenizer.ggml.merges", str))]
    if not merges:
        raise metadata.error("its tokenizer has no merges (tokenizer.ggml.merges)")
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    backend = Backend(_bpe(metadata, vocabulary, merges, ignore_merges=split is _Split.LLAMA3))
    if split is _Split.QWEN2:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = _pre_tokenizer(split)
    backend.decoder = decoders.ByteLevel()
    return backend, split is _Split.LLAMA3


def _pre_tokenizer(split: _Split) -> pre_tokenizers.PreTokenizer:
    if split is _Split.GPT2:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if split is _Split.GPT2_DIGITS:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    pattern = Regex(_LLAMA3_SPLIT if split is _Split.LLAMA3 else _QWEN2_SPLIT)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(pattern, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _sentence_piece_backend(metadata: _Metadata, tokens: list[str]) -> tuple[Backend, bool]:
    """The backend, and whether it adds BOS where the file does not say."""
    scores = metadata.items("tokenizer.ggml.scores", float)
    if len(scores) != len(tokens):
        raise metadata.error(f"its tokenizer has {len(scores)} scores (tokenizer.ggml.scores) for {len(tokens)} tokens")
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    types = metadata.items("tokenizer.ggml.token_type", int)
    unknown = next((token for token, kind in zip(tokens, types, strict=False) if kind == _TokenType.UNKNOWN), None)
    backend = Backend(_bpe(metadata, vocabulary, _merges_by_score(vocabulary, scores), unk_token=unknown, fuse_unk=True, byte_fallback=True))
    prefixed = metadata.scalar("tokenizer.ggml.add_space_prefix", bool) is not False
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first" if prefixed else "never", split=False)
    strip = [decoders.Strip(content=" ", left=1)] if prefixed else []
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return backend, True


def _merges_by_score(vocabulary: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """The merges that SentencePiece leaves out: each way to make a token of two others, best score first, then longest left part first."""
    merges: list[tuple[float, str, str]] = []
    for token, token_id in vocabulary.items():
        for cut in range(len(token) - 1, 0, -1):
            left, right = token[:cut], token[cut:]
            if left in vocabulary and right in vocabulary:
                merges.append((scores[token_id], left, right))
    merges.sort(key=lambda merge: (-merge[0], -len(merge[1]), -len(merge[2])))
    return [(left, right) for _, left, right in merges]


def _bpe(metadata: _Metadata, vocabulary: dict[str, int], merges: list[tuple[str, str]], **options: str | bool | None) -> models.BPE:
    try:
        return models.BPE(vocab=vocabulary, merges=merges, **options)
    except Exception as error:  # the library raises no narrower class
        raise metadata.error(f"its merges do not fit its vocabulary: {error}") from error


def _add_special_tokens(backend: Backend, metadata: _Metadata, tokens: list[str]) -> None:
    """Control and user-defined tokens are recognized whole in a text; only control tokens are special."""
    types = metadata.items("tokenizer.ggml.token_type", int)
    added = {_TokenType.CONTROL: backend.add_special_tokens, _TokenType.USER_DEFINED: backend.add_tokens}
    for kind, add in added.items():
        add([AddedToken(token, normalized=False, special=kind is _TokenType.CONTROL) for token, own in zip(tokens, types, strict=False) if own == kind])
