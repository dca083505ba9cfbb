"""Llama on a CPU, a whole step in one call of C++: the weights packed once, the activations in C++'s hands. Its results are LlamaModel's, bit for bit."""

import weakref
from ctypes import byref, c_void_p

import torch
from torch import Tensor

from stoker_engine.layers.attention import AttentionMetadata
from stoker_engine.layers.rotary import RotaryEmbedding
from stoker_engine.models.config import ModelShape
from stoker_engine.models.llama import EMBEDDING, FINAL_NORM, HEAD
from stoker_engine.models.weights import Weights
from stoker_kernels.cpu.library import AttentionShape, Layer, Model, Step
from stoker_kernels.cpu.ops import GROUP_TOKENS, CpuOps
from stoker_kernels.cpu.packed_weight import PackedWeight
from stoker_kernels.cpu.workspace import Workspace

MAX_KEPT_ROWS = 256
"""Logits of more rows, which only log probabilities of prompts ask for, are not kept for the next step."""


class FusedLlama:
    """As LlamaModel, for bfloat16. Positions from `max_positions` on, and those that the KV cache has no slots for, have no rotation: they must not occur."""

    def __init__(self, shape: ModelShape, weights: Weights, ops: CpuOps, max_positions: int) -> None:
        self.device = torch.device("cpu")
        self.dtype = torch.bfloat16
        self._ops = ops
        self._hidden_size = shape.hidden_size
        # What C++ points into: it lives as long as the model.
        self._kept: list[Tensor | PackedWeight] = []
        self._workspace = Workspace(ops.library)
        embedding = self._keep(weights.pop(EMBEDDING))
        self._layers = (Layer * shape.num_layers)(*(self._layer(shape, weights, f"model.layers.{index}.") for index in range(shape.num_layers)))
        final_norm = self._keep(weights.pop(FINAL_NORM))
        self._head = ops.pack(embedding if shape.ties_embeddings else weights.pop(HEAD))
        self._rotary = RotaryEmbedding(shape.rope, self.device)
        self._max_positions = max_positions
        self._cos_sin = self._rotary.cos_sin(torch.arange(0), self.dtype)
        self._model = Model(
            shape.hidden_size,
            shape.intermediate_size,
            self._cos_sin.shape[2],
            shape.num_layers,
            self._layers,
            embedding.data_ptr(),
            final_norm.data_ptr(),
            None,
            shape.rms_norm_epsilon,
        )
        self._most_logits = self._logits = torch.empty(0, shape.vocab_size)
        # What the last step was called with, whose addresses are in `_step`.
        self._arguments: tuple[Tensor | None, Tensor | None, AttentionMetadata | None, Tensor | None] = (None, None, None, None)
        self._step = Step()
        # No reference to the caches: whoever drops them frees them.
        self._first_cache: weakref.ref[Tensor] | None = None
        self._cache_pointers = (c_void_p * 0)()

    def forward(self, input_ids: Tensor, positions: Tensor, attention_metadata: AttentionMetadata, kv_caches: list[Tensor]) -> Tensor:
        """The result is overwritten by the next call with the same tensors, whose values may be others."""
        if self._first_cache is None or self._first_cache() is not kv_caches[0]:
            self._point_to(kv_caches)
        ids, where, metadata, hidden = self._arguments
        if hidden is None or ids is not input_ids or where is not positions or metadata is not attention_metadata:
            hidden = self._prepare(input_ids, positions, attention_metadata)
        self._ops.library.stoker_run_step(byref(self._model), byref(self._step), self._workspace.pointer)
        return hidden

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """The result is overwritten by the next call."""
        num_rows = hidden.shape[0]
        if num_rows > MAX_KEPT_ROWS:
            return self._ops.linear_to_floats(hidden, self._head, torch.empty(num_rows, self._head.outputs))
        if num_rows != self._logits.shape[0]:
            if num_rows > self._most_logits.shape[0]:
                self._most_logits = torch.empty(num_rows, self._head.outputs)
            self._logits = self._most_logits[:num_rows]
        return self._ops.linear_to_floats(hidden, self._head, self._logits)

    def _prepare(self, input_ids: Tensor, positions: Tensor, attention_metadata: AttentionMetadata) -> Tensor:
        """Lays out a step for C++, and says where its hidden states will be."""
        hidden = torch.empty(len(input_ids), self._hidden_size, dtype=self.dtype)
        self._arguments = input_ids, positions, attention_metadata, hidden
        self._step = Step(
            len(input_ids),
            input_ids.data_ptr(),
            positions.data_ptr(),
            attention_metadata.slot_mapping.data_ptr(),
            attention_metadata.plan.batch,
            self._cache_pointers,
            hidden.data_ptr(),
        )
        return hidden

    def _point_to(self, kv_caches: list[Tensor]) -> None:
        self._first_cache = weakref.ref(kv_caches[0])
        self._cache_pointers = (c_void_p * len(kv_caches))(*(cache.data_ptr() for cache in kv_caches))
        self._arguments = (None, None, None, None)
        num_blocks, _, num_groups = kv_caches[0].shape[:3]
        self._rotate_up_to(min(self._max_positions, num_blocks * num_groups * GROUP_TOKENS))
        for layer in self._layers:
            layer.attention.block_size = num_groups * GROUP_TOKENS

    def _rotate_up_to(self, num_positions: int) -> None:
        """Angles for the longest request that a cache holds, which may be far from the longest that the model allows: a million positions take 256 MB."""
        if num_positions > len(self._cos_sin):
            self._cos_sin = self._rotary.cos_sin(torch.arange(num_positions), self.dtype)
            self._model.cos_sin = self._cos_sin.data_ptr()

    def _layer(self, shape: ModelShape, weights: Weights, prefix: str) -> Layer:
        def norm(name: str) -> int:
            return self._keep(weights.pop(f"{prefix}{name}.weight")).data_ptr()

        def packed(name: str, *, interleaved: bool = False) -> PackedWeight:
            weight = self._ops.pack(weights.pop(f"{prefix}{name}.weight"), weights.pop(f"{prefix}{name}.bias", None), interleaved=interleaved)
            self._kept.append(weight)
            return weight

        return Layer(
            norm("input_layernorm"),
            packed("self_attn.qkv").matrix(),
            packed("self_attn.o").matrix(),
            norm("post_attention_layernorm"),
            packed("mlp.gate_up", interleaved=True).matrix(),
            packed("mlp.down").matrix(),
            AttentionShape(shape.num_heads, shape.num_kv_heads, shape.head_dim, 0, shape.head_dim**-0.5, 0.0, 0, None),
        )

    def _keep(self, tensor: Tensor) -> Tensor:
        self._kept.append(tensor)
        return tensor
