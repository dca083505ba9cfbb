import json
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker_engine.errors import ModelLoadError
from stoker_engine.models.config import ModelShape, parse_config, read_config
from stoker_engine.models.config_fields import ConfigFields
from stoker_engine.models.llama import llama_parameters

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}


def parse(**values: Any) -> ModelShape:
    return parse_config(ConfigFields(LLAMA | values, "config.json"))


@pytest.mark.case("C057")
def test_an_explicit_head_dim_sizes_the_projections_even_if_hidden_size_is_no_multiple_of_it() -> None:
    parameters = llama_parameters(parse(head_dim=16, hidden_size=60))
    assert parameters["model.layers.1.self_attn.q_proj.weight"].shape == (128, 60)
    assert parameters["model.layers.1.self_attn.o_proj.weight"].shape == (60, 128)


@pytest.mark.case("C057")
def test_head_dim_is_derived_where_it_is_null() -> None:
    assert parse(head_dim=None, hidden_size=48, num_attention_heads=6, num_key_value_heads=3).head_dim == 8


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": None}, "hidden_size is missing; it must be an integer of at least 1"),
        ({"vocab_size": "96"}, "vocab_size must be an integer of at least 1, got '96'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be an integer of at least 1, got 0"),
        ({"num_key_value_heads": 3}, "num_key_value_heads must divide num_attention_heads, which is 8, got 3"),
        ({"hidden_size": 60}, "head_dim is missing, and hidden_size 60 is no multiple of num_attention_heads 8"),
        ({"head_dim": 7}, "head_dim 7 with partial_rotary_factor 1.0 rotates 7 dimensions"),
        ({"rms_norm_eps": -1e-5}, "rms_norm_eps must be a number above 0, got -1e-05"),
        ({"hidden_act": "gelu"}, "hidden_act must be 'silu', got 'gelu'"),
        ({"torch_dtype": "int8"}, "torch_dtype must be one of float32, bfloat16, float16, got 'int8'"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings must be true or false, got 'yes'"),
        ({"architectures": []}, "architectures must be a list with the model's architecture, got []"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config with quant_method 'gptq' is not supported"),
        ({"rope_scaling": [1]}, "rope_scaling must be an object, got [1]"),
    ],
)
def test_a_bad_value_is_named_with_its_key(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelLoadError) as error:
        parse(**values)
    assert str(error.value).startswith(f"config.json: {message}")


@pytest.mark.parametrize(("content", "message"), [("{", "not valid JSON"), ("[1]", "must hold a JSON object")])
def test_a_file_that_is_no_json_object_is_named(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelLoadError, match=rf"{tmp_path}/config\.json: {message}"):
        read_config(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=rf"{tmp_path}/config\.json: cannot be read: No such file"):
        read_config(tmp_path)


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_the_checkpoints_dtype_is_read_in_both_spellings(key: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {key: "bfloat16"}))
    assert read_config(tmp_path).dtype == torch.bfloat16


@pytest.mark.case("C056")
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, 512),
        ({"sliding_window": 128}, 128),
        ({"sliding_window": 128, "use_sliding_window": False}, 512),
        ({"sliding_window": 1024}, 512),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 128}, 512),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 128, "use_sliding_window": True}, 128),
    ],
)
def test_the_context_ends_where_a_sliding_window_would_begin_to_matter(values: dict[str, Any], expected: int) -> None:
    assert parse(**values).max_context == expected


def test_an_architecture_that_is_not_supported_is_refused_with_those_that_are() -> None:
    with pytest.raises(ModelLoadError, match="'MambaForCausalLM' is not supported; supported are LlamaForCausalLM, "):
        parse_config(ConfigFields({"architectures": ["MambaForCausalLM"]}, "config.json"))
