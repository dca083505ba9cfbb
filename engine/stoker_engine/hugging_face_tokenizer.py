"""The tokenizer of a Hugging Face directory: tokenizer.json with its neighbors."""

from pathlib import Path
from typing import TypeVar

import msgspec
from tokenizers import Tokenizer as Backend

from stoker_engine.errors import ModelLoadError
from stoker_engine.tokenizer_source import GenerationDefaults, TokenizerSource

_TOKENIZER_NAME = "tokenizer.json"


class _Token(msgspec.Struct):
    content: str


class _NamedTemplate(msgspec.Struct):
    name: str
    template: str


class _TokenizerConfig(msgspec.Struct):
    """tokenizer_config.json, or special_tokens_map.json, which has two of its fields."""

    bos_token: str | _Token | None = None
    eos_token: str | _Token | None = None
    add_bos_token: bool | None = None
    chat_template: str | list[_NamedTemplate] | None = None


class _GenerationConfig(GenerationDefaults, frozen=True, kw_only=True):
    """generation_config.json, or config.json, which has one of its fields."""

    eos_token_id: int | list[int] | None = None


class _Vocabulary(msgspec.Struct):
    """The ids of most kinds, the tokens with their scores in order of the ids of Unigram."""

    vocab: dict[str, int] | list[tuple[str, float]]


class _AddedToken(msgspec.Struct):
    id: int


class _TokenIds(msgspec.Struct):
    """Of tokenizer.json, what has token ids."""

    model: _Vocabulary
    added_tokens: list[_AddedToken] = []


_File = TypeVar("_File", bound=msgspec.Struct)


def load_hugging_face_tokenizer(directory: Path) -> TokenizerSource:
    """Raises ModelLoadError, naming the file, if one is missing or not as it should be."""
    backend = _load_backend(directory)
    config = _read(directory / "tokenizer_config.json", _TokenizerConfig)
    special_tokens = _read(directory / "special_tokens_map.json", _TokenizerConfig)
    generation = _read(directory / "generation_config.json", _GenerationConfig)
    eos_token = _text(config.eos_token) or _text(special_tokens.eos_token)
    eos_token_id = generation.eos_token_id
    if eos_token_id is None:
        eos_token_id = _read(directory / "config.json", _GenerationConfig).eos_token_id
    templates = _chat_templates(directory, config)
    return TokenizerSource(
        backend=backend,
        bos_token=_text(config.bos_token) or _text(special_tokens.bos_token),
        eos_token=eos_token,
        adds_bos=config.add_bos_token,
        eos_token_ids=_eos_token_ids(backend.token_to_id(eos_token) if eos_token else None, eos_token_id),
        chat_template=templates.get("default"),
        tool_template=templates.get("tool_use"),
        generation_defaults=GenerationDefaults(**{name: getattr(generation, name) for name in GenerationDefaults.__struct_fields__}),
    )


def count_hugging_face_token_ids(directory: Path) -> int:
    """The highest token id + 1. Raises ModelLoadError as `load_hugging_face_tokenizer`."""
    try:
        content = msgspec.json.decode((directory / _TOKENIZER_NAME).read_bytes(), type=_TokenIds)
    except (OSError, msgspec.DecodeError):  # what it is instead, the library knows
        return max(_load_backend(directory).get_vocab(with_added_tokens=True).values(), default=-1) + 1
    vocabulary = content.model.vocab
    ids = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    return max([*ids, *(token.id for token in content.added_tokens)], default=-1) + 1


def _load_backend(directory: Path) -> Backend:
    path = directory / _TOKENIZER_NAME
    if not path.is_file():
        return _convert_backend(directory)
    try:
        return Backend.from_file(str(path))
    except Exception as error:  # the library raises no narrower class
        raise ModelLoadError(f"{path}: not a tokenizer that can be read: {error}") from error


def _convert_backend(directory: Path) -> Backend:
    """Without a tokenizer.json, transformers knows how to make one from what there is (vocab.json and merges.txt, tokenizer.model)."""
    from transformers import AutoTokenizer  # seconds to import, and wanted here only

    try:
        backend = AutoTokenizer.from_pretrained(directory, local_files_only=True).backend_tokenizer
    except Exception as error:  # transformers lets through whatever its many converters raise
        raise ModelLoadError(f"{directory}: no tokenizer.json, and none can be made from the other files: {error}") from error
    if not isinstance(backend, Backend):
        raise ModelLoadError(f"{directory}: no tokenizer.json, and its tokenizer class has no fast form")
    return backend


def _read(path: Path, model: type[_File]) -> _File:
    """The file's fields that `model` names; their defaults if there is no such file."""
    if not path.is_file():
        return model()
    try:
        return msgspec.json.decode(path.read_bytes(), type=model)
    except msgspec.DecodeError as error:
        raise ModelLoadError(f"{path}: {error}") from error


def _text(token: str | _Token | None) -> str | None:
    return token.content if isinstance(token, _Token) else token


def _eos_token_ids(own: int | None, generation: int | list[int] | None) -> tuple[int, ...]:
    more = [generation] if isinstance(generation, int) else generation or []
    return tuple(dict.fromkeys([*([] if own is None else [own]), *more]))


def _chat_templates(directory: Path, config: _TokenizerConfig) -> dict[str, str]:
    """By name. A file of its own wins over the entry of its name in tokenizer_config.json."""
    paths = {path.stem: path for path in (directory / "additional_chat_templates").glob("*.jinja")}
    if (main := directory / "chat_template.jinja").is_file():
        paths["default"] = main
    from_files = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    return {**_configured_templates(config), **from_files}


def _configured_templates(config: _TokenizerConfig) -> dict[str, str]:
    if isinstance(config.chat_template, list):
        return {entry.name: entry.template for entry in config.chat_template}
    return {} if config.chat_template is None else {"default": config.chat_template}
