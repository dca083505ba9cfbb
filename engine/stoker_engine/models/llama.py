"""Llama and the architectures of the same structure: RMSNorm, rotary grouped-query attention, SwiGLU (Touvron et al. 2023).

Rounds where Hugging Face's modelling code rounds: after each norm before its scale, each rotary product, each projection before the residual, silu.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from stoker_engine.layers.attention import AttentionMetadata
from stoker_engine.layers.embedding import LanguageModelHead, TokenEmbedding
from stoker_engine.layers.norm import RMSNorm
from stoker_engine.layers.rotary import RotaryEmbedding
from stoker_engine.models.config import ModelShape
from stoker_engine.models.weights import Parameter, Weights
from stoker_kernels import Ops
from stoker_kernels.linear import Linear

EMBEDDING, FINAL_NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """One layer's weights: `qkv` and `gate_up` are merged projections, their parts one after the other in the rows."""

    input_norm: RMSNorm
    qkv: Linear
    attention_output: Linear
    mlp_norm: RMSNorm
    gate_up: Linear
    down: Linear


class LlamaModel:
    """The model on one device. `weights` are those that `llama_parameters` asks for; they are taken out of the dict as they are laid out, to hold one copy."""

    def __init__(self, shape: ModelShape, weights: Weights, ops: Ops) -> None:
        embedding = weights.pop(EMBEDDING)
        self.shape = shape
        self.device = embedding.device
        self.dtype = embedding.dtype
        self._ops = ops
        self._scale = shape.head_dim**-0.5
        self._embedding = TokenEmbedding(embedding)
        self._rotary = RotaryEmbedding(shape.rope, embedding.device)
        self._layers = [_layer(shape, weights, f"model.layers.{index}.", ops) for index in range(shape.num_layers)]
        self._final_norm = RMSNorm(weights.pop(FINAL_NORM), shape.rms_norm_epsilon, ops)
        # A tied head is laid out apart from the embedding: logits read it whole at every step, 2.0 ms instead of 4.0 for [49152, 576] at one row.
        self._head = LanguageModelHead(ops.make_linear(embedding if shape.ties_embeddings else weights.pop(HEAD), None))

    @torch.inference_mode()
    def forward(self, input_ids: Tensor, positions: Tensor, attention_metadata: AttentionMetadata, kv_caches: list[Tensor]) -> Tensor:
        """input_ids [T], positions [T] → normalized hidden states [T, hidden]. Writes the step's keys and values to kv_caches, one for each layer."""
        residual = self._embedding(input_ids)
        cos_sin = self._rotary.cos_sin(positions, self.dtype)
        hidden = self._layers[0].input_norm(residual)
        next_norms = [layer.input_norm for layer in self._layers[1:]] + [self._final_norm]
        for layer, next_norm, kv_cache in zip(self._layers, next_norms, kv_caches, strict=True):
            attended = self._attend(layer, hidden, cos_sin, attention_metadata, kv_cache)
            hidden = layer.mlp_norm.add_and_norm(attended, residual)
            hidden = layer.down(self._ops.silu_and_mul(layer.gate_up(hidden)))
            hidden = next_norm.add_and_norm(hidden, residual)
        return hidden

    @torch.inference_mode()
    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [R, hidden] of the rows that sample → logits [R, vocabulary] in float32."""
        return self._head(hidden)

    def _attend(self, layer: DecoderLayer, hidden: Tensor, cos_sin: Tensor, metadata: AttentionMetadata, kv_cache: Tensor) -> Tensor:
        shape = self.shape
        num_tokens, num_heads = hidden.shape[0], shape.num_heads + 2 * shape.num_kv_heads
        # [T, query | key | value heads, head_dim]
        heads = layer.qkv(hidden).view(num_tokens, num_heads, shape.head_dim)
        self._ops.rotary_and_cache(heads, cos_sin, metadata.slot_mapping, kv_cache)
        attended = self._ops.paged_attention(heads[:, : shape.num_heads], kv_cache, metadata.plan, self._scale)
        return layer.attention_output(attended.view(num_tokens, -1))


def llama_parameters(shape: ModelShape) -> dict[str, Parameter]:
    """Every tensor that a checkpoint of this shape must have, by name, and where it goes."""
    hidden, vocab = shape.hidden_size, shape.vocab_size
    parameters = {EMBEDDING: Parameter(EMBEDDING, (vocab, hidden)), FINAL_NORM: Parameter(FINAL_NORM, (hidden,))}
    if not shape.ties_embeddings:
        parameters[HEAD] = Parameter(HEAD, (vocab, hidden))
    for index in range(shape.num_layers):
        parameters |= _layer_parameters(shape, f"model.layers.{index}.")
    return parameters


def _layer_parameters(shape: ModelShape, prefix: str) -> dict[str, Parameter]:
    hidden, query, key_value = shape.hidden_size, shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    parameters = {name: Parameter(name, (hidden,)) for name in (prefix + "input_layernorm.weight", prefix + "post_attention_layernorm.weight")}
    qkv = {"q_proj": query, "k_proj": key_value, "v_proj": key_value}
    parameters |= _merged(attention, "qkv", qkv, hidden, has_bias=shape.has_qkv_bias)
    parameters |= _merged(attention, "o", {"o_proj": hidden}, query, has_bias=shape.has_output_bias)
    parameters |= _merged(mlp, "gate_up", {"gate_proj": shape.intermediate_size, "up_proj": shape.intermediate_size}, hidden, has_bias=shape.has_mlp_bias)
    parameters |= _merged(mlp, "down", {"down_proj": hidden}, shape.intermediate_size, has_bias=shape.has_mlp_bias)
    return parameters


def _merged(prefix: str, target: str, parts: dict[str, int], num_inputs: int, *, has_bias: bool) -> dict[str, Parameter]:
    """The parameters of projections that share one matrix: the rows of each, in order."""
    parameters, first_row = {}, 0
    for name, num_rows in parts.items():
        parameters[f"{prefix}{name}.weight"] = Parameter(f"{prefix}{target}.weight", (num_rows, num_inputs), first_row)
        if has_bias:
            parameters[f"{prefix}{name}.bias"] = Parameter(f"{prefix}{target}.bias", (num_rows,), first_row)
        first_row += num_rows
    return parameters


def _layer(shape: ModelShape, weights: Weights, prefix: str, ops: Ops) -> DecoderLayer:
    def norm(name: str) -> RMSNorm:
        return RMSNorm(weights.pop(f"{prefix}{name}.weight"), shape.rms_norm_epsilon, ops)

    def linear(name: str) -> Linear:
        return ops.make_linear(weights.pop(f"{prefix}{name}.weight"), weights.pop(f"{prefix}{name}.bias", None))

    return DecoderLayer(
        input_norm=norm("input_layernorm"),
        qkv=linear("self_attn.qkv"),
        attention_output=linear("self_attn.o"),
        mlp_norm=norm("post_attention_layernorm"),
        gate_up=linear("mlp.gate_up"),
        down=linear("mlp.down"),
    )
