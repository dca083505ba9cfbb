from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType

from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.errors import ModelLoadError
from stoker_engine.models.gguf_weights import hugging_face_name, open_gguf
from stoker_engine.models.loader import LoadedModel, load_model

LogitsOf = Callable[..., torch.Tensor]

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    module, _, kind = name.rpartition(".")
    if module.startswith("model.layers."):
        _, _, layer, part = module.split(".", 3)
        return f"blk.{layer}.{NAMES[part]}.{kind}"
    return f"{NAMES[module]}.{kind}"


def permute(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """As llama.cpp's converter does for its llama architecture."""
    return weight.reshape(num_heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(path: Path, model: Any, quantization: GGMLQuantizationType, architecture: str = "llama") -> Path:
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_eos_token_id(5)
    for name, tensor in model.state_dict().items():
        weight = tensor.float().numpy()
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            weight = permute(weight, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
        kept = weight.ndim == 1 or quantization == GGMLQuantizationType.F32
        raw_dtype = GGMLQuantizationType.F32 if kept else quantization
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(weight, raw_dtype), raw_dtype=raw_dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def load(path: Path, **settings: Any) -> LoadedModel:
    return load_model(path, EngineConfig(model=ModelConfig(uri=f"file://{path}"), **settings), torch.device("cpu"), lambda _: None)


@pytest.fixture
def half(tiny: Any) -> Any:
    """A model whose weights are float16 numbers, so that F16 holds them exactly."""
    tiny.write(tie_word_embeddings=False)
    tiny.reference.half().float()
    return tiny


@pytest.mark.case("C062")
def test_f16_gives_back_the_original_rows_and_greedy_tokens(half: Any, greedy: Callable[..., list[int]]) -> None:
    path = write_gguf(half.path / "m.gguf", half.reference, GGMLQuantizationType.F16)
    restored = dict(open_gguf(path).iterate_tensors())
    assert restored.keys() == half.reference.state_dict().keys()
    for name, tensor in half.reference.state_dict().items():
        assert torch.equal(restored[name], tensor), name
    assert greedy(load(path, dtype="float32"), 32) == half.reference_greedy(32)


@pytest.mark.case("C062")
def test_q8_0_gives_nearly_the_logits_of_the_original(half: Any, logits_of: LogitsOf) -> None:
    half.write(intermediate_size=96, initializer_range=0.1)
    path = write_gguf(half.path / "m.gguf", half.reference, GGMLQuantizationType.Q8_0)
    logits = logits_of(load(path, dtype="float32"))
    assert torch.cosine_similarity(logits, half.reference_logits()).min() > 0.999


@pytest.mark.case("C062")
def test_qwen2_rows_are_not_permuted(tiny: Any, greedy: Callable[..., list[int]]) -> None:
    tiny.write("Qwen2", tie_word_embeddings=False)
    path = write_gguf(tiny.path / "m.gguf", tiny.reference, GGMLQuantizationType.F32, architecture="qwen2")
    assert greedy(load(path, dtype="float32"), 32) == tiny.reference_greedy(32)


def test_a_file_without_an_output_matrix_ties_it_to_the_embedding(tiny: Any, logits_of: LogitsOf) -> None:
    tiny.write(tie_word_embeddings=True)
    state = tiny.reference.state_dict()
    del state["lm_head.weight"]
    tiny.reference.state_dict = lambda: state
    path = write_gguf(tiny.path / "m.gguf", tiny.reference, GGMLQuantizationType.F32)
    torch.testing.assert_close(logits_of(load(path, dtype="float32")), tiny.reference_logits(), rtol=1e-4, atol=1e-4)


def test_the_dtype_is_bfloat16_unless_set(half: Any) -> None:
    path = write_gguf(half.path / "m.gguf", half.reference, GGMLQuantizationType.F16)
    assert load(path).dtype == torch.bfloat16


def test_rope_factors_divide_the_frequencies(half: Any) -> None:
    factors = torch.tensor([1.0, 2.0, 4.0, 8.0])
    half.reference.register_buffer("rope_freqs", factors)
    NAMES["rope_freqs"] = "rope_freqs"
    state = half.reference.state_dict()
    state["rope_freqs.weight"] = state.pop("rope_freqs")
    half.reference.state_dict = lambda: state
    path = write_gguf(half.path / "m.gguf", half.reference, GGMLQuantizationType.F16)
    checkpoint = open_gguf(path)
    assert checkpoint.shape.rope.frequency_factors == (1.0, 2.0, 4.0, 8.0)
    assert "rope_freqs.weight" not in dict(checkpoint.iterate_tensors())


@pytest.mark.case("C062")
@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_refused_by_name(share: float, half: Any) -> None:
    path = write_gguf(half.path / "m.gguf", half.reference, GGMLQuantizationType.F16)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelLoadError, match=rf"{path}: "):
        load(path)


@pytest.mark.case("C062")
def test_a_file_cut_within_its_tensors_says_so(half: Any) -> None:
    path = write_gguf(half.path / "m.gguf", half.reference, GGMLQuantizationType.F16)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelLoadError, match=r"the file is truncated: it has \d+ bytes, tensor \S+ ends at \d+"):
        load(path)


def test_an_unknown_architecture_is_refused_with_those_that_are_known(half: Any) -> None:
    path = write_gguf(half.path / "m.gguf", half.reference, GGMLQuantizationType.F16, architecture="mamba")
    with pytest.raises(ModelLoadError, match=r"general\.architecture 'mamba' is not supported; supported in GGUF are llama, qwen2"):
        load(path)


def test_a_missing_tensor_is_named(half: Any) -> None:
    state = half.reference.state_dict()
    del state["model.layers.1.mlp.down_proj.weight"]
    half.reference.state_dict = lambda: state
    path = write_gguf(half.path / "m.gguf", half.reference, GGMLQuantizationType.F16)
    with pytest.raises(ModelLoadError, match=r"tensor model\.layers\.1\.mlp\.down_proj\.weight is missing"):
        load(path)


def test_names_without_a_counterpart_stay_as_they_are() -> None:
    assert hugging_face_name("blk.12.ffn_gate.weight") == "model.layers.12.mlp.gate_proj.weight"
    assert hugging_face_name("blk.12.attn_rot_embd.weight") == "blk.12.attn_rot_embd.weight"
    assert hugging_face_name("v.position_embd") == "v.position_embd"
