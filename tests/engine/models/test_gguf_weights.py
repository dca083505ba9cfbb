import random
import re
import struct
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
    "rope_freqs": "rope_freqs",
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
    restored = dict(open_gguf(path).iterate_tensors(torch.float32))
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
    state = half.reference.state_dict()
    state["rope_freqs.weight"] = state.pop("rope_freqs")
    half.reference.state_dict = lambda: state
    path = write_gguf(half.path / "m.gguf", half.reference, GGMLQuantizationType.F16)
    checkpoint = open_gguf(path)
    assert checkpoint.shape.rope.frequency_factors == (1.0, 2.0, 4.0, 8.0)
    assert "rope_freqs.weight" not in dict(checkpoint.iterate_tensors(torch.float32))


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


def write_table(path: Path, name: str, shape: tuple[int, ...], type_code: int = 1, offset: int = 0, count: int = 1) -> Path:
    """A file with a table of one tensor, `count` times, and a block of 4 KiB behind it; shape as ggml has it, the columns first."""
    architecture = b"general.architecture"
    pair = struct.pack("<Q", len(architecture)) + architecture + struct.pack("<IQ", 8, 5) + b"llama"
    line = struct.pack("<Q", len(name)) + name.encode() + struct.pack(f"<I{len(shape)}Q", len(shape), *shape) + struct.pack("<IQ", type_code, offset)
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, count, 1) + pair + count * line + bytes(4096))
    return path


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"shape": ()}, "tensor token_embd.weight has the shape [], which its type cannot have"),
        ({"shape": (0, 4)}, "tensor token_embd.weight has the shape [4, 0], which its type cannot have"),
        ({"shape": (1, 1, 1, 1, 1)}, "tensor token_embd.weight has the shape [1, 1, 1, 1, 1], which its type cannot have"),
        ({"shape": (33, 4), "type_code": 8}, "tensor token_embd.weight has the shape [4, 33], which its type cannot have"),
        ({"shape": (2**63, 2**63)}, "the file is truncated: it has"),
        ({"shape": (4, 4), "offset": 2**64 - 1}, "the file is truncated: it has"),
        ({"shape": (4, 4), "type_code": 2**32 - 1}, "tensor token_embd.weight has the unknown type 4294967295"),
        ({"shape": (4, 4), "count": 2}, "tensor token_embd.weight is there twice"),
    ],
)
def test_a_damaged_line_of_the_tensor_table_is_refused_by_name(table: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write_table(tmp_path / "m.gguf", "token_embd.weight", **table)
    with pytest.raises(ModelLoadError) as error:
        open_gguf(path)
    assert str(error.value).startswith(f"{path}: {message}")


def test_no_damage_to_the_tensor_table_raises_anything_else(half: Any) -> None:
    path = write_gguf(half.path / "m.gguf", half.reference, GGMLQuantizationType.F16)
    whole, rng, refused = path.read_bytes(), random.Random(1), 0
    table = range(min(whole.index(name) for name in (b"token_embd.weight", b"blk.0.")) - 8, whole.index(b"output.weight") + 40)
    for _ in range(200):
        damaged = bytearray(whole)
        for place in rng.sample(table, rng.choice([1, 2, 8])):
            damaged[place] = rng.choice([0, 1, 2, 127, 128, 255, damaged[place] ^ 1 << rng.randrange(8)])
        path.write_bytes(damaged)
        try:
            load(path)
        except ModelLoadError as error:
            assert str(error).startswith(f"{path}: ")
            refused += 1
    assert refused > 100


def test_rows_that_are_no_pairs_for_the_heads_are_refused(half: Any) -> None:
    half.write(intermediate_size=88)
    path = write_gguf(half.path / "m.gguf", half.reference, GGMLQuantizationType.F16)
    names = (b"blk.0.attn_q.weight", b"blk.0.ffn_up.weight")
    first, second, third = re.split(b"|".join(names), path.read_bytes())
    path.write_bytes(first + names[1] + second + names[0] + third)
    with pytest.raises(ModelLoadError, match=r"tensor blk\.0\.attn_q\.weight has 88 rows, which are no pairs for 8 heads"):
        dict(open_gguf(path).iterate_tensors(torch.float32))


def test_an_architecture_that_is_no_name_is_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path / "m.gguf", "token_embd.weight", (4, 4))
    a_list = struct.pack("<IIQ", 9, 0, 1) + b"\x05"
    path.write_bytes(path.read_bytes().replace(struct.pack("<IQ", 8, 5) + b"llama", a_list))
    with pytest.raises(ModelLoadError, match=r"general\.architecture \[5\] is not supported"):
        open_gguf(path)


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
