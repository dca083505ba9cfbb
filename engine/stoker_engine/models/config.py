"""ModelShape: what a checkpoint's configuration says about the model, checked."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from stoker_engine.errors import ModelLoadError
from stoker_engine.layers.rotary import RopeParameters
from stoker_engine.models.config_fields import ConfigFields
from stoker_engine.models.rope_config import max_context, read_rope

CONFIG_NAME = "config.json"

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""By the names that configs and settings use."""

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM")
"""Those that are supported; anything else is refused before the rest of its configuration is looked at."""
_ARCHITECTURES_WITH_QKV_BIAS = ("Qwen2ForCausalLM",)
_ARCHITECTURES_WITH_OPTIONAL_WINDOW = ("Qwen2ForCausalLM",)
"""Their sliding_window means nothing unless use_sliding_window says so; elsewhere it counts whenever it is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder's sizes and constants. `max_context` is the longest context in tokens, stretched by its rope; `dtype` None: the checkpoint does not say."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_epsilon: float
    rope: RopeParameters
    max_context: int
    ties_embeddings: bool = False
    has_qkv_bias: bool = False
    has_output_bias: bool = False
    has_mlp_bias: bool = False
    dtype: torch.dtype | None = None


def read_config(directory: Path) -> ModelShape:
    """The shape of the model in a Hugging Face directory. Raises ModelLoadError naming the file, key and value at fault."""
    path = directory / CONFIG_NAME
    try:
        values = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ModelLoadError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise ModelLoadError(f"{path}: must hold a JSON object")
    return parse_config(ConfigFields(values, str(path)))


def parse_config(config: ConfigFields) -> ModelShape:
    """A shape from the keys of a Hugging Face config. Raises ModelLoadError naming the key and value at fault."""
    architecture = _architecture(config)
    _refuse_unsupported(config)
    num_heads, num_kv_heads, head_dim = _heads(config)
    rope = read_rope(config, head_dim)
    has_bias = config.boolean("attention_bias", default=False)
    return ModelShape(
        architecture=architecture,
        vocab_size=config.integer("vocab_size"),
        hidden_size=config.integer("hidden_size"),
        intermediate_size=config.integer("intermediate_size"),
        num_layers=config.integer("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_epsilon=config.number("rms_norm_eps", 1e-6),
        rope=rope,
        max_context=_max_context(config, rope, has_optional_window=architecture in _ARCHITECTURES_WITH_OPTIONAL_WINDOW),
        ties_embeddings=config.boolean("tie_word_embeddings", default=False),
        has_qkv_bias=has_bias or architecture in _ARCHITECTURES_WITH_QKV_BIAS,
        has_output_bias=has_bias,
        has_mlp_bias=config.boolean("mlp_bias", default=False),
        dtype=_dtype(config),
    )


def _architecture(config: ConfigFields) -> str:
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
        raise config.error("architectures", "must be a list with the model's architecture")
    name: str = architectures[0]
    if name not in ARCHITECTURES:
        raise ModelLoadError(f"{config.source}: architecture {name!r} is not supported; supported are {', '.join(ARCHITECTURES)}")
    return name


def _refuse_unsupported(config: ConfigFields) -> None:
    if config.text("hidden_act", "silu") != "silu":
        raise config.error("hidden_act", "must be 'silu'")
    if "quantization_config" in config:
        method = config.section("quantization_config").get("quant_method")
        raise ModelLoadError(f"{config.source}: quantization_config with quant_method {method!r} is not supported; use an unquantized or a GGUF model")


def _heads(config: ConfigFields) -> tuple[int, int, int]:
    hidden_size, num_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    num_kv_heads = config.integer("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise config.error("num_key_value_heads", f"must divide num_attention_heads, which is {num_heads}")
    if "head_dim" not in config and hidden_size % num_heads:
        raise ModelLoadError(f"{config.source}: head_dim is missing, and hidden_size {hidden_size} is no multiple of num_attention_heads {num_heads}")
    return num_heads, num_kv_heads, config.integer("head_dim", hidden_size // num_heads)


def _max_context(config: ConfigFields, rope: RopeParameters, *, has_optional_window: bool) -> int:
    longest = max_context(rope, config.integer("max_position_embeddings"))
    if "sliding_window" in config and config.boolean("use_sliding_window", default=not has_optional_window):
        # Within the window every token sees all before it, so full attention is exact that far and no further.
        return min(longest, config.integer("sliding_window"))
    return longest


def _dtype(config: ConfigFields) -> torch.dtype | None:
    key = "dtype" if "dtype" in config else "torch_dtype"
    if key not in config:
        return None
    name = config.text(key)
    if name not in DTYPES:
        raise config.error(key, f"must be one of {', '.join(DTYPES)}")
    return DTYPES[name]
