"""The configuration of a GGUF file, told in the keys of a Hugging Face config, so that one parser checks both."""

from collections.abc import Mapping

from stoker_engine.errors import ModelLoadError
from stoker_engine.gguf_metadata import GGUFHeader
from stoker_engine.models.config_fields import ConfigFields

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}

EMBEDDING_NAME, HEAD_NAME, ROPE_FACTORS_NAME = "token_embd.weight", "output.weight", "rope_freqs.weight"

_KEYS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "max_position_embeddings": "context_length",
    "sliding_window": "attention.sliding_window",
}
_ROPE_KEYS = {
    "rope_theta": "rope.freq_base",
    "factor": "rope.scaling.factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
}


def translate_gguf_config(header: GGUFHeader, source: str) -> ConfigFields:
    """The header as a Hugging Face config. Raises ModelLoadError for an architecture that is not supported, or a mixture of experts."""
    metadata = header.metadata
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        raise ModelLoadError(f"{source}: general.architecture {architecture!r} is not supported; supported in GGUF are {', '.join(ARCHITECTURES)}")
    if metadata.get(f"{architecture}.expert_count"):
        raise ModelLoadError(f"{source}: {architecture}.expert_count {metadata[f'{architecture}.expert_count']}: mixtures of experts are not supported")
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    if EMBEDDING_NAME not in shapes:
        raise ModelLoadError(f"{source}: tensor {EMBEDDING_NAME} is missing")
    values = _translate(_KEYS, metadata, f"{architecture}.")
    values |= {
        "architectures": [ARCHITECTURES[architecture]],
        "vocab_size": shapes[EMBEDDING_NAME][0],
        "tie_word_embeddings": HEAD_NAME not in shapes,
        "attention_bias": "blk.0.attn_output.bias" in shapes,
        "mlp_bias": "blk.0.ffn_down.bias" in shapes,
        "rope_parameters": _rope(metadata, f"{architecture}."),
    }
    return ConfigFields(values, source)


def _rope(metadata: Mapping[str, object], prefix: str) -> dict[str, object]:
    values = _translate(_ROPE_KEYS, metadata, prefix)
    rope_type = metadata.get(f"{prefix}rope.scaling.type", "none")
    values["rope_type"] = "default" if rope_type == "none" else rope_type
    return values


def _translate(keys: Mapping[str, str], metadata: Mapping[str, object], prefix: str) -> dict[str, object]:
    return {key: metadata[prefix + name] for key, name in keys.items() if prefix + name in metadata}
