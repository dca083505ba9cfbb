import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from stoker_engine.errors import ModelLoadError, ParameterError
from stoker_engine.gguf_tokenizer import load_gguf_tokenizer
from stoker_engine.tokenizer import GenerationDefaults, Tokenizer, count_token_ids, load_tokenizer

WriteModel = Callable[..., Path]


@pytest.fixture
def backend(smollm2_path: Path) -> Backend:
    return load_gguf_tokenizer(smollm2_path).backend


@pytest.fixture
def write_model(tmp_path: Path) -> WriteModel:
    """Writes a directory with a tokenizer.json and JSON files given as keyword arguments."""

    def write(backend: Backend, **files: object) -> Path:
        backend.save(str(tmp_path / "tokenizer.json"))
        for name, content in {"config": {}, **files}.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        return tmp_path

    return write


def test_a_directory_gives_the_ids_of_its_tokenizer_json(backend: Backend, write_model: WriteModel, smollm2_tokenizer: Tokenizer) -> None:
    tokenizer = load_tokenizer(write_model(backend, tokenizer_config={"eos_token": "<|im_end|>", "bos_token": {"content": "<|im_start|>"}}))
    text = "Hello 😀, 漢字  2024 <|im_end|>"
    assert tokenizer.encode(text) == smollm2_tokenizer.encode(text)
    assert (tokenizer.bos_token_id, tokenizer.eos_token, tokenizer.eos_token_ids) == (1, "<|im_end|>", (2,))


def test_all_eos_ids_of_the_generation_config_end_an_answer(backend: Backend, write_model: WriteModel) -> None:
    tokenizer = load_tokenizer(write_model(backend, tokenizer_config={"eos_token": "<|im_end|>"}, generation_config={"eos_token_id": [0, 2, 7]}))
    assert tokenizer.eos_token_ids == (2, 0, 7)


def test_without_a_generation_config_the_eos_id_of_the_model_config_counts(backend: Backend, write_model: WriteModel) -> None:
    assert load_tokenizer(write_model(backend, config={"eos_token_id": 9, "model_type": "llama"})).eos_token_ids == (9,)


def test_special_tokens_map_names_tokens_that_the_tokenizer_config_does_not(backend: Backend, write_model: WriteModel) -> None:
    tokenizer = load_tokenizer(write_model(backend, special_tokens_map={"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}}))
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")


def test_the_sampling_defaults_of_the_model_are_kept(backend: Backend, write_model: WriteModel) -> None:
    generation = {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.05, "do_sample": True, "transformers_version": "4.51"}
    tokenizer = load_tokenizer(write_model(backend, generation_config=generation))
    assert tokenizer.generation_defaults == GenerationDefaults(temperature=0.6, top_p=0.9, top_k=20, repetition_penalty=1.05)


@pytest.mark.parametrize(("stated", "expected"), [({"add_bos_token": True}, [1]), ({"add_bos_token": False}, []), ({}, [])])
def test_bos_is_added_as_the_tokenizer_config_says(backend: Backend, write_model: WriteModel, stated: dict[str, bool], expected: list[int]) -> None:
    config = {"bos_token": "<|im_start|>", **stated}
    tokenizer = load_tokenizer(write_model(backend, tokenizer_config=config))
    assert tokenizer.encode("Hello") == expected + tokenizer.encode_chat("Hello")


@pytest.mark.parametrize(("stated", "expected"), [({"add_bos_token": True}, [1]), ({"add_bos_token": False}, []), ({}, [1])])
def test_bos_of_the_post_processor_is_added_once_and_never_to_a_templated_text(
    backend: Backend, write_model: WriteModel, stated: dict[str, bool], expected: list[int]
) -> None:
    backend.post_processor = processors.TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)])
    config = {"bos_token": "<|im_start|>", **stated}
    tokenizer = load_tokenizer(write_model(backend, tokenizer_config=config))
    hello = tokenizer.encode_chat("Hello")
    assert 1 not in hello
    assert tokenizer.encode("Hello") == expected + hello
    assert tokenizer.encode_chat("<|im_start|>Hello") == [1, *hello]


def test_a_truncation_setting_in_tokenizer_json_is_not_applied_to_prompts(backend: Backend, write_model: WriteModel) -> None:
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    assert len(load_tokenizer(write_model(backend)).encode("one two three four five six")) == 6


def test_the_default_of_several_chat_templates_is_taken(backend: Backend, write_model: WriteModel) -> None:
    templates = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    assert load_tokenizer(write_model(backend, tokenizer_config={"chat_template": templates})).chat_template == "D"


def test_a_template_for_tools_is_known(backend: Backend, write_model: WriteModel) -> None:
    templates = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    directory = write_model(backend, tokenizer_config={"chat_template": templates})
    assert (load_tokenizer(directory).chat_template, load_tokenizer(directory).tool_template) == ("d", "t")
    (directory / "additional_chat_templates").mkdir()
    (directory / "additional_chat_templates" / "tool_use.jinja").write_text("file")
    (directory / "chat_template.jinja").write_text("main")
    assert (load_tokenizer(directory).chat_template, load_tokenizer(directory).tool_template) == ("main", "file")


def test_a_template_file_for_tools_leaves_the_default_of_the_tokenizer_config(backend: Backend, write_model: WriteModel) -> None:
    directory = write_model(backend, tokenizer_config={"chat_template": "in the config"})
    (directory / "additional_chat_templates").mkdir()
    (directory / "additional_chat_templates" / "tool_use.jinja").write_text("file")
    assert (load_tokenizer(directory).chat_template, load_tokenizer(directory).tool_template) == ("in the config", "file")


def test_a_chat_template_file_wins_over_the_tokenizer_config(backend: Backend, write_model: WriteModel) -> None:
    directory = write_model(backend, tokenizer_config={"chat_template": "in the config"})
    (directory / "chat_template.jinja").write_text("in the file")
    assert load_tokenizer(directory).chat_template == "in the file"


def test_added_tokens_above_the_model_vocabulary_count_in_vocab_size(backend: Backend, write_model: WriteModel) -> None:
    backend.add_tokens([AddedToken("é added", special=False)])
    tokenizer = load_tokenizer(write_model(backend))
    assert tokenizer.vocab_size == 49153
    assert tokenizer.encode("an é added token").count(49152) == 1
    assert tokenizer.token_bytes(49152) == "é added".encode()


@pytest.mark.parametrize(
    "model",
    [
        models.BPE(vocab={"a": 0, "b": 3}, merges=[]),
        models.WordLevel(vocab={"a": 0, "[UNK]": 5}, unk_token="[UNK]"),
        models.WordPiece(vocab={"a": 4, "[UNK]": 1}, unk_token="[UNK]"),
        models.Unigram([("a", -1.0), ("b", -2.0)], 0, byte_fallback=False),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_ids_of_every_kind_of_vocabulary_are_counted_without_making_a_tokenizer(model: models.Model, write_model: WriteModel) -> None:
    backend = Backend(model)
    backend.decoder = decoders.ByteLevel()
    assert count_token_ids(write_model(backend)) == load_tokenizer(write_model(backend)).vocab_size
    backend.add_tokens([AddedToken("<added>")])
    assert count_token_ids(write_model(backend)) == load_tokenizer(write_model(backend)).vocab_size


@pytest.mark.parametrize("content", ["", "{", "[]", '{"model": {}}'])
def test_ids_that_cannot_be_counted_are_refused_by_the_files_name(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelLoadError, match=rf"{tmp_path}/tokenizer\.json: not a tokenizer that can be read"):
        count_token_ids(tmp_path)


def test_a_directory_without_tokenizer_json_is_converted_by_transformers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    assert load_tokenizer(tmp_path).encode("abba") == [2, 1, 0]


def test_a_directory_without_any_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelLoadError, match=f"{tmp_path}: no tokenizer.json"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
def test_a_damaged_file_is_named(backend: Backend, write_model: WriteModel, name: str) -> None:
    directory = write_model(backend)
    (directory / name).write_text('{"eos_token":')
    with pytest.raises(ModelLoadError, match=name):
        load_tokenizer(directory)


@pytest.mark.parametrize("text", ["a\ud800b", "\udfff"])
def test_a_text_with_a_lone_surrogate_is_a_parameter_error(smollm2_tokenizer: Tokenizer, text: str) -> None:
    with pytest.raises(ParameterError, match="surrogate"):
        smollm2_tokenizer.encode(text)


@pytest.mark.parametrize(
    ("decoder", "token", "expected"),
    [
        (None, "word", b" word"),
        (decoders.WordPiece(), "##ing", b"ing"),
        (decoders.WordPiece(), "walk", b" walk"),
        (decoders.BPEDecoder(), "end</w>", b"end "),
        (decoders.Metaspace(), "▁word", b" word"),
        (decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]), "<0xE2>", b"\xe2"),
        (decoders.ByteLevel(), "Ġdéjà", b" d\xe9j\xe0"),
    ],
)
def test_each_kind_of_vocabulary_spells_bytes_in_its_own_way(write_model: WriteModel, decoder: decoders.Decoder | None, token: str, expected: bytes) -> None:
    backend = Backend(models.WordLevel({token: 0, "[UNK]": 1}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    if decoder is not None:
        backend.decoder = decoder
    assert load_tokenizer(write_model(backend)).token_bytes(0) == expected


def test_a_decoder_without_bytes_for_its_tokens_is_refused_by_name(write_model: WriteModel) -> None:
    backend = Backend(models.WordLevel({"a": 0}, unk_token="a"))
    backend.decoder = decoders.CTC()
    with pytest.raises(ModelLoadError, match="CTC"):
        load_tokenizer(write_model(backend))
